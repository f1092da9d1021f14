#include "longstraw/policy/rollouts.hpp"

#include "longstraw/core/log.hpp"
#include "longstraw/policy/rollout_lines.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <string_view>
#include <type_traits>
#include <unordered_map>

namespace longstraw {
namespace {

constexpr int faults_told = 5;

size_t hash_of(const std::vector<int32_t>& ids) {
  return std::hash<std::string_view>()(
      {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int32_t)});
}

// Remembers what earlier lines held, to find what may stand in a file only once.
class Seen {
 public:
  explicit Seen(const std::string& file) : file_(file) {}

  // `groups` are those before `group`.
  void check(const Group& group, const std::vector<Group>& groups) {
    const auto [same_id, new_id] = group_lines_.emplace(group.id, groups.size());
    if (!new_id) {
      const Group& other = groups[same_id->second];
      throw Error(
          other.prompt == group.prompt
              ? str("{}: group {} stands at lines {} and {} with the same prompt - put all of its "
                    "responses on one line",
                    file_, group.id, other.line, group.line)
              : str("{}: group {} stands at lines {} and {} with different prompts (a group shares "
                    "one) - give each group its own id",
                    file_, group.id, other.line, group.line));
    }
    for (const auto& response : group.responses) {
      const auto [line, added] = response_lines_.emplace(response.id, group.line);
      require(added, "{}: response {} stands at lines {} and {} - give each response its own id",
              file_, response.id, line->second, group.line);
    }
    const auto [same_prompt, new_prompt] = prompts_.emplace(hash_of(group.prompt), groups.size());
    if (!new_prompt && groups[same_prompt->second].prompt == group.prompt)
      log(Level::warning, "{}: groups {} and {} (lines {} and {}) have the same prompt", file_,
          groups[same_prompt->second].id, group.id, groups[same_prompt->second].line, group.line);
  }

 private:
  std::string file_;
  std::unordered_map<std::string, size_t> group_lines_;
  std::unordered_map<std::string, int64_t> response_lines_;
  std::unordered_map<size_t, size_t> prompts_;
};

Rollouts read_file(const std::string& path, OnBadSample on_bad_sample) {
  std::ifstream stream(path, std::ios::binary);
  require(stream.good(), "cannot read rollouts {} - check [rollouts] file", path);
  Rollouts rollouts;
  rollouts.file = path;
  Seen seen(path);
  std::string text;
  for (int64_t line = 1; std::getline(stream, text); ++line) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    std::vector<std::string> faults;
    Group group = parse_group(text, {path, line}, faults);
    require(faults.empty() || on_bad_sample == OnBadSample::drop,
            "{} - correct it, or set [rollouts] on_bad_sample = drop",
            faults.empty() ? "" : faults.front());
    for (const auto& fault : faults)
      if (rollouts.dropped_responses++ < faults_told)
        log(Level::warning, "response dropped: {}", fault);
    // Ids of dropped responses do not count as seen, those of dropped groups do.
    seen.check(group, rollouts.groups);
    if (group.responses.empty()) ++rollouts.dropped_groups;
    rollouts.groups.push_back(std::move(group));
  }
  require(!stream.bad(), "cannot read rollouts {} to the end", path);
  require(!rollouts.groups.empty(), "rollouts {} hold no group (the file is empty)", path);
  std::erase_if(rollouts.groups, [](const Group& group) { return group.responses.empty(); });
  require(!rollouts.groups.empty(), "rollouts {} hold no response that can be used ({} dropped)",
          path, rollouts.dropped_responses);
  if (rollouts.dropped_responses > 0)
    log(Level::warning, "{}: {} responses dropped, and with them {} whole groups", path,
        rollouts.dropped_responses, rollouts.dropped_groups);
  return rollouts;
}

// Rollouts as bytes: each list as its length and its elements.
class Packer {
 public:
  template <class T>
  void value(T x) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&x), sizeof x);
  }
  template <class List>
  void list(const List& x) {
    value(static_cast<int64_t>(x.size()));
    bytes_.append(reinterpret_cast<const char*>(x.data()), x.size() * sizeof x[0]);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Unpacker {
 public:
  explicit Unpacker(const std::string& bytes) : bytes_(bytes) {}
  template <class T>
  void value(T& x) {
    copy(&x, sizeof x);
  }
  template <class List>
  void list(List& x) {
    int64_t count = 0;
    value(count);
    x.resize(count);
    copy(x.data(), count * sizeof x[0]);
  }

 private:
  void copy(void* to, size_t count) {
    LONGSTRAW_ASSERT(at_ + count <= bytes_.size());
    if (count > 0) std::memcpy(to, bytes_.data() + at_, count);
    at_ += count;
  }
  const std::string& bytes_;
  size_t at_ = 0;
};

// One order of members for both directions.
template <class Archive>
void members(Archive& archive, auto& response) {
  archive.list(response.id);
  archive.list(response.ids);
  archive.value(response.reward);
  archive.list(response.logprobs);
  archive.list(response.ref_logprobs);
  archive.list(response.loss_mask);
  archive.value(response.advantage);
  archive.list(response.finish_reason);
}

std::string packed(const Rollouts& rollouts) {
  Packer packer;
  packer.value(rollouts.dropped_responses);
  packer.value(rollouts.dropped_groups);
  packer.value(rollouts.groups.size());
  for (const auto& group : rollouts.groups) {
    packer.list(group.id);
    packer.list(group.prompt);
    packer.value(group.line);
    packer.value(group.responses.size());
    for (const auto& response : group.responses) members(packer, response);
  }
  return packer.take();
}

Rollouts unpacked(const std::string& bytes, const std::string& path) {
  Unpacker unpacker(bytes);
  Rollouts rollouts;
  rollouts.file = path;
  unpacker.value(rollouts.dropped_responses);
  unpacker.value(rollouts.dropped_groups);
  size_t count = 0;
  unpacker.value(count);
  rollouts.groups.resize(count);
  for (auto& group : rollouts.groups) {
    unpacker.list(group.id);
    unpacker.list(group.prompt);
    unpacker.value(group.line);
    unpacker.value(count);
    group.responses.resize(count);
    for (auto& response : group.responses) members(unpacker, response);
  }
  return rollouts;
}

void check_ids(const std::vector<int32_t>& ids, int64_t vocab, const std::string& where) {
  const auto bad =
      std::find_if(ids.begin(), ids.end(), [&](int32_t id) { return id < 0 || id >= vocab; });
  require(bad == ids.end(),
          "{}[{}] is token id {}, outside the model's vocabulary of {} - use the tokenizer of the "
          "checkpoint",
          where, bad - ids.begin(), bad == ids.end() ? 0 : *bad, vocab);
}

}  // namespace

RolloutSettings read_rollout_settings(Deck& deck) {
  constexpr int64_t any = std::numeric_limits<int64_t>::max();
  RolloutSettings settings;
  settings.file = deck.path("rollouts.file");
  settings.groups_per_step =
      deck.get_in("rollouts.groups_per_step", settings.groups_per_step, int64_t{1}, any);
  settings.epochs = deck.get_in("rollouts.epochs", settings.epochs, int64_t{1}, any);
  settings.shuffle = deck.get("rollouts.shuffle", settings.shuffle);
  const auto bad = deck.one_of("rollouts.on_bad_sample", "stop", {"stop", "drop"});
  settings.on_bad_sample = bad == "drop" ? OnBadSample::drop : OnBadSample::stop;
  return settings;
}

std::string place_of(const std::string& file, const Group& group, const Response* response) {
  const std::string place = str("{} line {}: group {}", file, group.line, group.id);
  return response ? str("{}: response {}", place, response->id) : place;
}

Rollouts load_rollouts(const std::string& path, OnBadSample on_bad_sample, const Grid& grid) {
  Rollouts rollouts;
  std::string bytes;
  agree(grid, [&] {
    if (grid.rank() != 0) return;
    rollouts = read_file(path, on_bad_sample);
    if (grid.size() > 1) bytes = packed(rollouts);
  });
  if (grid.size() == 1) return rollouts;
  bytes = grid.broadcast(std::move(bytes), 0);
  return grid.rank() == 0 ? std::move(rollouts) : unpacked(bytes, path);
}

void check_token_ids(const Rollouts& rollouts, int64_t vocab) {
  for (const auto& group : rollouts.groups) {
    check_ids(group.prompt, vocab, place_of(rollouts.file, group) + ": prompt");
    for (const auto& response : group.responses)
      check_ids(response.ids, vocab, place_of(rollouts.file, group, &response) + ": ids");
  }
}

}  // namespace longstraw
