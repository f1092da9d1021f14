// The folder that one run writes to: deck.ini, history.jsonl, log, weights/, dumps/, gradients.
#pragma once

#include "longstraw/comm/grid.hpp"
#include "longstraw/io/folder_lock.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace longstraw {

/// Rank 0 holds the folder's lock for as long as this lives.
class RunFolder {
 public:
  /// Whether the folder may hold what an earlier life of the run left.
  enum class Earlier { refused, allowed };

  /// Refuses a folder that another job works in, that cannot be made or written to, in which HDF5
  /// cannot work, or that holds history, weights or dumps of another run or a deck.ini that no run
  /// wrote; leaves nothing behind. Collective over `grid`.
  static void check(const std::string& path, Earlier earlier, const Grid& grid);

  /// Refuses a folder on a disk with fewer than `bytes` free. Collective over `grid`.
  static void check_room(const std::string& path, int64_t bytes, const Grid& grid);

  /// Checks and makes the folder. Collective over `grid`.
  RunFolder(const std::string& path, Earlier earlier, const Grid& grid);
  /// The run goes on: weights that are there count as finished no more, and `deck` is put there as
  /// deck.ini, below a comment. Collective over `grid`.
  void begin(const std::string& deck, const Grid& grid) const;

  /// Absolute.
  const std::string& path() const { return path_; }
  std::string history() const { return path_ + "/history.jsonl"; }
  std::string log() const { return path_ + "/log"; }
  std::string weights() const { return path_ + "/weights"; }
  std::string dumps() const { return path_ + "/dumps"; }
  std::string gradients(int64_t step) const;

 private:
  std::string path_;
  std::unique_ptr<FolderLock> lock_;
};

}  // namespace longstraw
