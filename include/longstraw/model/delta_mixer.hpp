// Gated DeltaNet (Qwen3.5 in Hugging Face transformers): projections, causal convolution and the
// gated delta rule. Tokens are re-cut into heads for convolution and recurrence, whose state stays
// with the head's owner, and back.
#pragma once

#include "longstraw/kernels/delta_rule.hpp"
#include "longstraw/model/exchange.hpp"
#include "longstraw/model/mixer.hpp"

#include <string>

namespace longstraw {

class DeltaMixer : public Mixer {
 public:
  /// Adds the parameters of layer `layer` to `list`, under `prefix` ("...layers.N.linear_attn.").
  DeltaMixer(const ModelConfig& config, int layer, ParameterList& list, const std::string& prefix);

  StateShape state_shape(const Grid& grid) const override;
  std::unique_ptr<MixerRecord> forward(const Pass& pass, const Tensor& y, Field x) const override;
  void backward(const Pass& pass, const Tensor& dx, const Tensor& dy,
                const MixerRecord& record) const override;

 private:
  struct Record;

  /// The heads of one rank: a contiguous range of value heads and the key heads they need. Its
  /// local channels are [queries | keys | values].
  struct Heads {
    Range values;
    Range keys;
    HeadMap map;
  };
  Heads heads_of(const Grid& grid, int rank) const;
  int64_t channels(const Heads& heads) const;
  /// The rank's ranges of the convolution's channels.
  std::vector<Range> channel_ranges(const Heads& heads) const;
  void gather_conv_weight(const Tensor& to, const Tensor& weight, const Heads& heads) const;
  /// Columns of [mixed channels | a | b] that each rank needs, and of the recurrence's output.
  ColumnExchange inputs_exchange(const Pass& pass) const;
  ColumnExchange outputs_exchange(const Pass& pass) const;

  void recur(const Pass& pass, Record& record) const;
  void conv_backward(const Pass& pass, const Record& record, const Tensor& dm,
                     const Tensor& dmixed) const;
  Field recur_backward(const Pass& pass, const Record& record, const Tensor& dout) const;

  int layer_;
  int64_t key_heads_, value_heads_, key_dim_, value_dim_, taps_;
  double norm_eps_;
  ParameterId qkv_, z_, b_, a_, conv_, dt_bias_, a_log_, norm_, out_;
};

}  // namespace longstraw
