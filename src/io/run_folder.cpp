#include "longstraw/io/run_folder.hpp"

#include "longstraw/io/checkpoint.hpp"
#include "longstraw/io/file.hpp"
#include "longstraw/io/hdf5.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>

#include <unistd.h>

namespace longstraw {
namespace {

namespace fs = std::filesystem;

constexpr const char* deck_name = "/deck.ini";
constexpr std::string_view deck_mark = "# Completed by LongStraw: the deck of this run";

// The nearest folder that exists: `path` itself, or where it would be made.
fs::path existing_parent(fs::path path) {
  std::error_code failed;
  while (!fs::exists(path, failed) && path.has_relative_path()) path = path.parent_path();
  return path;
}

// Some file systems have no locks, and HDF5 will not open a file there unless it is told to.
void check_hdf5(const std::string& folder) {
  // Its own name: of two jobs that start together, one must not remove the other's.
  const std::string file = str("{}/.longstraw-probe-{}.h5", folder, ::getpid());
  std::error_code ignored;
  try {
    { const auto made = h5::create_file(file); }
    const auto opened = h5::open_file(file);
  } catch (const Error& error) {
    fs::remove(file, ignored);
    const char* locking = std::getenv("HDF5_USE_FILE_LOCKING");
    // Without the name, which is another on every try.
    std::string reason = error.what();
    if (const size_t at = reason.find(file); at != std::string::npos)
      reason.replace(at, file.size(), "in it");
    throw Error(
        str("HDF5 cannot work there: {}; HDF5_USE_FILE_LOCKING is {}, FALSE keeps it from "
            "locking files",
            reason, locking == nullptr ? "not set" : locking));
  }
  fs::remove(file, ignored);
}

// Whether the deck at `path` is what an earlier run left, which came to nothing.
bool written_by_a_run(const std::string& path) {
  std::string start(deck_mark.size(), ' ');
  std::ifstream(path, std::ios::binary).read(start.data(), std::ssize(start));
  return start == deck_mark;
}

// Refusals of a folder have the exit status of arguments.
void check_here(const std::string& path, RunFolder::Earlier earlier) {
  std::error_code failed;
  for (const char* name : {"history.jsonl", "weights", "dumps"})
    require(earlier == RunFolder::Earlier::allowed || !fs::exists(path + "/" + name, failed),
            str("run folder {} holds {} of another run - go on with it by -r auto or a dump in it, "
                "choose another with -d, or remove it",
                path, name),
            2);
  for (const char* name : {"weights", "dumps"})
    require(!fs::exists(path + "/" + name, failed) || fs::is_directory(path + "/" + name, failed),
            str("run folder {}: {} is there and no folder - choose another with -d, or remove it",
                path, name),
            2);
  require(!fs::exists(path + deck_name, failed) || written_by_a_run(path + deck_name),
          str("run folder {} holds a deck.ini of yours, which a run would replace by its completed "
              "one - choose another with -d",
              path),
          2);
  const auto parent = existing_parent(path);
  require(fs::is_directory(parent, failed),
          str("run folder {}: {} is no folder - choose another with -d", path, parent.string()), 2);
  try {
    check_writable(parent.string());
    check_hdf5(parent.string());
  } catch (const Error& error) {
    throw Error(str("run folder {}: {} - choose another with -d", path, error.what()), 2);
  }
}

}  // namespace

void RunFolder::check(const std::string& path, Earlier earlier, const Grid& grid) {
  agree(grid, [&] {
    if (grid.rank() != 0) return;
    const std::string folder = fs::absolute(path).lexically_normal().string();
    FolderLock::check(folder);
    check_here(folder, earlier);
  });
}

void RunFolder::check_room(const std::string& path, int64_t bytes, const Grid& grid) {
  agree(grid, [&] {
    if (grid.rank() != 0) return;
    const auto parent = existing_parent(fs::absolute(path).lexically_normal());
    std::error_code failed;
    const auto [capacity, unused, room] = fs::space(parent, failed);
    require(
        failed || capacity == 0 || room >= static_cast<uintmax_t>(bytes),
        str("run folder {}: its weights and gradients take {} bytes, {} are free in {} - choose "
            "another with -d",
            path, bytes, room, parent.string()),
        2);
  });
}

RunFolder::RunFolder(const std::string& path, Earlier earlier, const Grid& grid)
    : path_(fs::absolute(path).lexically_normal().string()) {
  if (path_.size() > 1 && path_.ends_with('/')) path_.pop_back();
  agree(grid, [&] {
    if (grid.rank() != 0) return;
    FolderLock::check(path_);
    check_here(path_, earlier);
    std::error_code failed;
    fs::create_directories(path_, failed);
    require(!failed,
            str("cannot make run folder {} ({}) - choose another with -d", path_, failed.message()),
            2);
    lock_ = std::make_unique<FolderLock>(path_);
    check_here(path_, earlier);
  });
}

void RunFolder::begin(const std::string& deck, const Grid& grid) const {
  agree(grid, [&] {
    if (grid.rank() != 0) return;
    std::error_code failed;
    fs::remove(weights() + "/" + origin_file, failed);
    write_text(path_ + deck_name, str("{}, with every default filled in.\n{}", deck_mark, deck));
  });
}

std::string RunFolder::gradients(int64_t step) const {
  return str("{}/gradient-{}.h5", path_, step);
}

}  // namespace longstraw
