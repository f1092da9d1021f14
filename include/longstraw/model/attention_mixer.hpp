// Softmax attention with grouped heads, normed queries and keys, partial rotary embedding and an
// output gate (Qwen3.5 in Hugging Face transformers). Keys and values stay with the rank that
// computed them; queries travel.
#pragma once

#include "longstraw/kernels/attention.hpp"
#include "longstraw/model/mixer.hpp"

#include <string>

namespace longstraw {

class AttentionMixer : public Mixer {
 public:
  /// Adds the parameters of layer `layer` to `list`, under `prefix` ("...layers.N.self_attn.").
  AttentionMixer(const ModelConfig& config, int layer, ParameterList& list,
                 const std::string& prefix);

  StateShape state_shape(const Grid& grid) const override;
  std::unique_ptr<MixerRecord> forward(const Pass& pass, const Tensor& y, Field x) const override;
  void backward(const Pass& pass, const Tensor& dx, const Tensor& dy,
                const MixerRecord& record) const override;

 private:
  struct Record;

  Tensor queries(const Tensor& queries_and_gates) const;
  Tensor gates(const Tensor& queries_and_gates) const;
  std::vector<KeyPage> pages(const Pass& pass) const;
  void attend(const Pass& pass, Record& record) const;
  Field attend_backward(const Pass& pass, const Record& record, const Tensor& dout) const;

  int layer_;
  int64_t heads_, kv_heads_, dim_;
  double norm_eps_, scale_;
  Rope rope_;
  ParameterId q_proj_, k_proj_, v_proj_, o_proj_, q_norm_, k_norm_;
};

}  // namespace longstraw
