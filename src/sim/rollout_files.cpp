#include "longstraw/sim/rollout_files.hpp"

#include "longstraw/core/log.hpp"
#include "longstraw/io/file.hpp"
#include "longstraw/io/hdf5.hpp"
#include "longstraw/policy/rollout_lines.hpp"
#include "longstraw/sim/rollout_hdf5.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>

namespace longstraw {
namespace {

std::unique_ptr<GroupReader> reader_of(const std::string& path, RolloutKind kind,
                                       OtherMembers other) {
  if (kind == RolloutKind::hdf5) return std::make_unique<RolloutHdf5Reader>(path, other);
  return std::make_unique<LineReader>(path);
}

std::unique_ptr<GroupWriter> writer_of(const std::string& path, RolloutKind kind) {
  if (kind == RolloutKind::hdf5) return std::make_unique<RolloutHdf5Writer>(path);
  return std::make_unique<LineWriter>(path);
}

RolloutKind other_kind(RolloutKind kind) {
  return kind == RolloutKind::hdf5 ? RolloutKind::json_lines : RolloutKind::hdf5;
}

// A name that promises the kind that is not written is a mistake.
void check_ending(const std::string& from, const std::string& to, RolloutKind written) {
  const std::string ending = std::filesystem::path(to).extension().string();
  const bool says_hdf5 = ending == ".h5" || ending == ".hdf5";
  const bool says_lines = ending == ".jsonl" || ending == ".json";
  require(written == RolloutKind::hdf5 ? !says_lines : !says_hdf5,
          str("{} holds {} and becomes {}, but {} ends in {} - choose another name with -o", from,
              name_of(other_kind(written)), name_of(written), to, ending),
          2);
}

void check_group(const RawGroup& raw) {
  std::vector<std::string> faults;
  const Group group = parse_group(raw, faults);
  require(faults.empty(), "{} - correct it", faults.empty() ? "" : faults.front());
  const std::string where = place_of(raw.place.file, group) + ": prompt";
  for (int64_t begin = 0; begin < group.prompt.size(); begin += prompt_piece)
    check_tokens(group.prompt.ids({begin, std::min(begin + prompt_piece, group.prompt.size())}),
                 begin, where);
}

}  // namespace

const char* name_of(RolloutKind kind) { return kind == RolloutKind::hdf5 ? "HDF5" : "JSON lines"; }

RolloutKind rollout_kind(const std::string& path) {
  return h5::is_hdf5(path) ? RolloutKind::hdf5 : RolloutKind::json_lines;
}

Rollouts open_rollouts(const std::string& path, OnBadSample on_bad_sample, const Grid& grid) {
  RolloutKind kind = grid.rank() == 0 ? rollout_kind(path) : RolloutKind::json_lines;
  grid.broadcast(&kind, sizeof kind, 0);
  std::unique_ptr<GroupReader> reader;
  agree(grid, [&] { reader = reader_of(path, kind, OtherMembers::left); });
  return load_rollouts(*reader, on_bad_sample, grid);
}

void write_scored(const std::string& from, const std::string& to, const std::string& key,
                  const Scores& scores) {
  const RolloutKind kind = rollout_kind(from);
  const auto reader = reader_of(from, kind, OtherMembers::read);
  write_into_place(to, [&](const std::string& temporary) {
    const auto writer = writer_of(temporary, kind);
    while (auto group = reader->next()) {
      add_scores(group->object, key, scores);
      writer->put(*group);
    }
    writer->finish();
  });
}

void convert(const std::string& from, const std::string& to, const Grid& grid) {
  agree(grid, [&] {
    if (grid.rank() != 0) return;
    std::error_code failed;
    require(std::filesystem::exists(from, failed), str("{}: no such file", from), 2);
    const RolloutKind kind = rollout_kind(from);
    check_ending(from, to, other_kind(kind));
    const auto reader = reader_of(from, kind, OtherMembers::read);
    int64_t groups = 0, responses = 0, tokens = 0;
    write_into_place(to, [&](const std::string& temporary) {
      const auto writer = writer_of(temporary, other_kind(kind));
      while (const auto group = reader->next()) {
        check_group(*group);
        writer->put(*group);
        ++groups;
        responses += std::ssize(group->object.at("responses"));
        tokens += group->prompt.size();
      }
      require(groups > 0, "rollouts {} hold no group (the file is empty)", from);
      writer->finish();
    });
    log(Level::info, "wrote {}: {}, {} group(s), {} response(s), {} prompt tokens", to,
        name_of(other_kind(kind)), groups, responses, tokens);
  });
}

}  // namespace longstraw
