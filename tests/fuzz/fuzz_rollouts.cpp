// The input is a line of rollouts. What was read is written and read again.
#include "fuzz/rollouts.hpp"

using namespace longstraw;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::read_or_refuse([&] {
    RawGroup raw = parse_line({reinterpret_cast<const char*>(data), size}, {"lines", 1});
    std::vector<std::string> faults;
    fuzz::check(parse_group(raw, faults));
    add_scores(raw.object, "logprobs", {{"a", {-1, -2}}});
    fuzz::must_read_again({std::move(raw)});
  });
  return 0;
}
