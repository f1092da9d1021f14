#include "longstraw/io/run_folder.hpp"

#include "longstraw/io/file.hpp"
#include "longstraw/io/hdf5.hpp"

#include <cstdlib>
#include <filesystem>

namespace longstraw {
namespace {

namespace fs = std::filesystem;

// The nearest folder that exists: `path` itself, or where it would be made.
fs::path existing_parent(fs::path path) {
  std::error_code failed;
  while (!fs::exists(path, failed) && path.has_relative_path()) path = path.parent_path();
  return path;
}

// Some file systems have no locks, and HDF5 will not open a file there unless it is told to.
void check_hdf5(const std::string& folder) {
  const std::string file = folder + "/.longstraw-probe.h5";
  std::error_code ignored;
  try {
    { const auto made = h5::create_file(file); }
    const auto opened = h5::open_file(file);
  } catch (const Error& error) {
    fs::remove(file, ignored);
    const char* locking = std::getenv("HDF5_USE_FILE_LOCKING");
    throw Error(
        str("HDF5 cannot work there: {}; HDF5_USE_FILE_LOCKING is {}, FALSE keeps it from "
            "locking files",
            error.what(), locking == nullptr ? "not set" : locking));
  }
  fs::remove(file, ignored);
}

// Refusals of a folder have the exit status of arguments.
void check_contents(const std::string& path) {
  std::error_code failed;
  for (const char* name : {"history.jsonl", "weights"})
    require(!fs::exists(path + "/" + name, failed),
            str("run folder {} holds {} of another run - choose another with -d, or remove it",
                path, name),
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

void RunFolder::check(const std::string& path, const Grid& grid) {
  agree(grid, [&] {
    if (grid.rank() != 0) return;
    const std::string folder = fs::absolute(path).lexically_normal().string();
    FolderLock::check(folder);
    check_contents(folder);
  });
}

RunFolder::RunFolder(const std::string& path, const std::string& deck, const Grid& grid)
    : path_(fs::absolute(path).lexically_normal().string()) {
  if (path_.size() > 1 && path_.ends_with('/')) path_.pop_back();
  agree(grid, [&] {
    if (grid.rank() != 0) return;
    FolderLock::check(path_);
    check_contents(path_);
    std::error_code failed;
    fs::create_directories(path_, failed);
    require(!failed,
            str("cannot make run folder {} ({}) - choose another with -d", path_, failed.message()),
            2);
    lock_ = std::make_unique<FolderLock>(path_);
    check_contents(path_);
    write_text(path_ + "/deck.ini", deck);
  });
}

std::string RunFolder::gradients(int64_t step) const {
  return str("{}/gradient-{}.h5", path_, step);
}

}  // namespace longstraw
