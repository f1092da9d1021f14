// The dumps of a run: their folder, which of them is the latest, and which are kept.
#pragma once

#include "longstraw/comm/grid.hpp"
#include "longstraw/io/dump.hpp"

#include <functional>
#include <optional>
#include <string>

namespace longstraw {

/// Whether the file at `path` is called as dumps are.
bool has_dump_name(const std::string& path);

class DumpFolder {
 public:
  /// `path` is made with the first dump.
  DumpFolder(std::string path, const Grid& grid);

  const std::string& path() const { return path_; }
  /// The dump that the link `latest` names, or, where there is none yet, the newest one. Collective
  /// over the grid.
  std::optional<std::string> latest() const;
  /// Paths of all dumps, the newest first. For one rank.
  std::vector<std::string> dumps() const;
  /// Files that a crash left half written. For one rank.
  std::vector<std::string> unfinished() const;

  /// Writes the dump after `ticks` ticks from what `list` lists; then moves `latest` and removes
  /// all but the `keep` newest dumps and what only they needed. Returns the bytes written. Refuses,
  /// naming bytes needed and free, when the disk has not the room; whatever happens, the older
  /// dumps stay. Collective over the grid.
  int64_t write(int64_t ticks, int64_t keep, const std::function<void(DumpFields&)>& list);

  /// A dump of this folder becomes the latest, and those that go on from it need not write again
  /// what it holds. False: `dump` is of another folder.
  bool go_on_from(const DumpReader& dump);

 private:
  void point_latest_to(const std::string& name) const;
  void prune(const std::string& newest, int64_t keep) const;

  std::string path_;
  const Grid& grid_;
  GrownArrays stored_;
};

}  // namespace longstraw
