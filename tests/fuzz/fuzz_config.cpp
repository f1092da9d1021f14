// The input is a config.json.
#include "fuzz/fuzz.hpp"

#include "longstraw/model/config.hpp"

#include <algorithm>
#include <cmath>

using namespace longstraw;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::read_or_refuse([&] {
    const ModelConfig config = parse_config({reinterpret_cast<const char*>(data), size}, "c.json");
    fuzz::must(config.heads % config.kv_heads == 0 && !config.layers.empty());
    fuzz::must(config.rope.longest > 0 && std::isfinite(config.rope.scale));
    fuzz::must(std::all_of(config.rope.inv_freq.begin(), config.rope.inv_freq.end(),
                           [](double f) { return f >= 0 && f <= 1; }));
  });
  return 0;
}
