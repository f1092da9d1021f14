#include "longstraw/policy/rollouts.hpp"

#include "longstraw/core/log.hpp"
#include "longstraw/core/random.hpp"
#include "longstraw/policy/group_json.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>
#include <unordered_map>

namespace longstraw {
namespace {

constexpr int faults_told = 5;

// Finds what may stand in a file only once. `hashes` are those of the prompts.
void check_duplicates(const Rollouts& rollouts, std::span<const uint64_t> hashes) {
  const std::string& file = rollouts.file;
  std::unordered_map<std::string, size_t> group_ids;
  std::unordered_map<std::string, int64_t> response_lines;
  std::unordered_map<uint64_t, size_t> prompts;
  for (size_t i = 0; i < rollouts.groups.size(); ++i) {
    const Group& group = rollouts.groups[i];
    if (const auto [same, fresh] = group_ids.emplace(group.id, i); !fresh) {
      const Group& other = rollouts.groups[same->second];
      throw Error(
          hashes[same->second] == hashes[i]
              ? str("{}: group {} stands at lines {} and {} with the same prompt - put all of its "
                    "responses on one line",
                    file, group.id, other.line, group.line)
              : str("{}: group {} stands at lines {} and {} with different prompts (a group shares "
                    "one) - give each group its own id",
                    file, group.id, other.line, group.line));
    }
    for (const auto& response : group.responses) {
      const auto [line, fresh] = response_lines.emplace(response.id, group.line);
      require(fresh, "{}: response {} stands at lines {} and {} - give each response its own id",
              file, response.id, line->second, group.line);
    }
    if (const auto [same, fresh] = prompts.emplace(hashes[i], i); !fresh) {
      const Group& other = rollouts.groups[same->second];
      log(Level::warning, "{}: groups {} and {} (lines {} and {}) have the same prompt", file,
          other.id, group.id, other.line, group.line);
    }
  }
}

Rollouts read_groups(GroupReader& reader, OnBadSample on_bad_sample) {
  Rollouts rollouts;
  rollouts.file = reader.file();
  while (const auto raw = reader.next()) {
    std::vector<std::string> faults;
    Group group = parse_group(*raw, faults);
    require(faults.empty() || on_bad_sample == OnBadSample::drop,
            "{} - correct it, or set [rollouts] on_bad_sample = drop",
            faults.empty() ? "" : faults.front());
    for (const auto& fault : faults)
      if (rollouts.dropped_responses++ < faults_told)
        log(Level::warning, "response dropped: {}", fault);
    if (group.responses.empty()) ++rollouts.dropped_groups;
    rollouts.groups.push_back(std::move(group));
  }
  require(!rollouts.groups.empty(), "rollouts {} hold no group (the file is empty)", rollouts.file);
  return rollouts;
}

// Groups that lost their last response have been looked at, and go.
void drop_empty_groups(Rollouts& rollouts) {
  std::erase_if(rollouts.groups, [](const Group& group) { return group.responses.empty(); });
  require(!rollouts.groups.empty(), "rollouts {} hold no response that can be used ({} dropped)",
          rollouts.file, rollouts.dropped_responses);
  if (rollouts.dropped_responses > 0)
    log(Level::warning, "{}: {} responses dropped, and with them {} whole groups", rollouts.file,
        rollouts.dropped_responses, rollouts.dropped_groups);
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
    packer.value(group.prompt.place());
    packer.list(group.prompt.held());
    packer.value(group.line);
    packer.value(group.responses.size());
    for (const auto& response : group.responses) members(packer, response);
  }
  return packer.take();
}

Rollouts unpacked(const std::string& bytes, const GroupReader& reader) {
  Unpacker unpacker(bytes);
  Rollouts rollouts;
  rollouts.file = reader.file();
  unpacker.value(rollouts.dropped_responses);
  unpacker.value(rollouts.dropped_groups);
  size_t count = 0;
  unpacker.value(count);
  rollouts.groups.resize(count);
  for (auto& group : rollouts.groups) {
    unpacker.list(group.id);
    Range place;
    std::vector<int32_t> held;
    unpacker.value(place);
    unpacker.list(held);
    group.prompt = held.empty() ? Prompt(place, reader.tokens()) : Prompt(std::move(held));
    unpacker.value(group.line);
    unpacker.value(count);
    group.responses.resize(count);
    for (auto& response : group.responses) members(unpacker, response);
  }
  return rollouts;
}

// `ids` begin at position `begin` of what `where` names.
void check_ids(std::span<const int32_t> ids, int64_t begin, int64_t vocab,
               const std::string& where) {
  const auto bad =
      std::find_if(ids.begin(), ids.end(), [&](int32_t id) { return id < 0 || id >= vocab; });
  require(bad == ids.end(),
          "{}[{}] is token id {}, outside the model's vocabulary of {} - use the tokenizer of the "
          "checkpoint",
          where, begin + (bad - ids.begin()), bad == ids.end() ? 0 : *bad, vocab);
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

Rollouts load_rollouts(GroupReader& reader, OnBadSample on_bad_sample, const Grid& grid) {
  Rollouts rollouts;
  std::string bytes;
  agree(grid, [&] {
    if (grid.rank() != 0) return;
    rollouts = read_groups(reader, on_bad_sample);
    if (grid.size() > 1) bytes = packed(rollouts);
  });
  if (grid.size() > 1) bytes = grid.broadcast(std::move(bytes), 0);
  if (grid.rank() != 0) rollouts = unpacked(bytes, reader);
  bytes = {};
  const auto hashes = prompt_hashes(rollouts, grid);
  agree(grid, [&] {
    // Ids of dropped responses do not count as seen, those of dropped groups do.
    if (grid.rank() == 0) check_duplicates(rollouts, hashes);
    drop_empty_groups(rollouts);
  });
  return rollouts;
}

void for_each_prompt_piece(const Rollouts& rollouts, const Grid& grid, const LookAtTokens& look) {
  int64_t all = 0, before = 0;
  for (const Group& group : rollouts.groups) all += group.prompt.size();
  const Range mine = grid.mine(all);
  for (int64_t index = 0; index < std::ssize(rollouts.groups); ++index) {
    const Prompt& prompt = rollouts.groups[index].prompt;
    const int64_t end = std::min(mine.end - before, prompt.size());
    for (int64_t at = std::max<int64_t>(mine.begin - before, 0); at < end; at += prompt_piece)
      look(index, at, prompt.ids({at, std::min(at + prompt_piece, end)}));
    before += prompt.size();
  }
}

std::vector<uint64_t> prompt_hashes(const Rollouts& rollouts, const Grid& grid) {
  std::vector<uint64_t> hashes(rollouts.groups.size(), 0);
  agree(grid, [&] {
    for_each_prompt_piece(
        rollouts, grid, [&](int64_t index, int64_t begin, std::span<const int32_t> ids) {
          check_tokens(ids, begin, place_of(rollouts.file, rollouts.groups[index]) + ": prompt");
          for (const int32_t id : ids)
            hashes[index] +=
                random_bits(static_cast<uint64_t>(id), 0, static_cast<uint64_t>(begin++));
        });
  });
  grid.sum(hashes);
  return hashes;
}

void check_token_ids(const Rollouts& rollouts, int64_t vocab, const Grid& grid) {
  for_each_prompt_piece(rollouts, grid,
                        [&](int64_t index, int64_t begin, std::span<const int32_t> ids) {
                          const Group& group = rollouts.groups[index];
                          check_ids(ids, begin, vocab, place_of(rollouts.file, group) + ": prompt");
                        });
  for (const auto& group : rollouts.groups)
    for (const auto& response : group.responses)
      check_ids(response.ids, 0, vocab, place_of(rollouts.file, group, &response) + ": ids");
}

}  // namespace longstraw
