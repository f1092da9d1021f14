// What a checkpoint's config.json says of a model, checked; families whose code is not here are
// refused.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace longstraw {

enum class LayerKind { linear_attention, full_attention };

/// Rotary embedding as a table: angle of pair j at position p is p * inv_freq[j].
struct Rope {
  std::string type;  ///< "default" or "yarn"
  double theta = 0;
  double factor = 1;             ///< YaRN's extension factor
  double scale = 1;              ///< multiplies cos and sin (YaRN's attention factor)
  int64_t longest = 0;           ///< tokens that the config vouches for
  std::vector<double> inv_freq;  ///< half of the rotary dimensions
};

/// Qwen3.5/3.6 dense text model (`qwen3_5_text`, or the text part of `qwen3_5`).
struct ModelConfig {
  std::string model_type;
  int64_t vocab = 0;
  int64_t hidden = 0;
  int64_t intermediate = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t linear_key_heads = 0;
  int64_t linear_value_heads = 0;
  int64_t linear_key_dim = 0;
  int64_t linear_value_dim = 0;
  int64_t conv_taps = 0;
  double norm_eps = 0;
  bool tied_embeddings = false;
  Rope rope;
  std::vector<LayerKind> layers;
  std::string quantization;  ///< the entry that says the weights are quantised; empty: none

  /// Channels of the convolution: queries, keys and values of the delta rule side by side.
  int64_t conv_channels() const {
    return 2 * linear_key_heads * linear_key_dim + linear_value_heads * linear_value_dim;
  }
};

/// Reads the text of a config.json; `where` names the file in errors. Unknown model types and
/// rope types, keys that ask for what is not computed, missing keys, sizes that do not fit each
/// other and places that contradict each other throw `Error`.
ModelConfig parse_config(const std::string& text, const std::string& where);

}  // namespace longstraw
