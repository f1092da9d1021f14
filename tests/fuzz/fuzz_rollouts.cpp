// The input is a line of rollouts. What was read is written and read again.
#include "fuzz/fuzz.hpp"

#include "longstraw/policy/rollout_lines.hpp"

#include <cmath>

using namespace longstraw;

namespace {

void check(const Group& group) {
  for (const Response& response : group.responses) {
    fuzz::must(std::isfinite(response.reward) && !response.ids.empty());
    for (const auto* list : {&response.logprobs, &response.ref_logprobs})
      fuzz::must(list->empty() || list->size() == response.ids.size());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::read_or_refuse([&] {
    RawGroup raw = parse_line({reinterpret_cast<const char*>(data), size}, {"lines", 1});
    std::vector<std::string> faults;
    const Group group = parse_group(raw, faults);
    check(group);
    add_scores(raw.object, "logprobs", {{"a", {-1, -2}}});

    const fuzz::MemoryFile file;
    {
      LineWriter writer(file.path());
      writer.put(raw);
      writer.finish();
    }
    const auto again = LineReader(file.path()).next();
    fuzz::must(again.has_value());
    fuzz::must(again->object == raw.object && again->prompt.ids({0, again->prompt.size()}) ==
                                                  raw.prompt.ids({0, raw.prompt.size()}));
  });
  return 0;
}
