#include "longstraw/io/run_folder.hpp"

#include "longstraw/io/file.hpp"

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

// Refusals of a folder have the exit status of arguments.
void check_here(const std::string& path) {
  std::error_code failed;
  require(
      !fs::exists(path + "/history.jsonl", failed),
      str("run folder {} holds the history of another run - choose another with -d, or remove it",
          path),
      2);
  const auto parent = existing_parent(path);
  require(fs::is_directory(parent, failed),
          str("run folder {}: {} is no folder - choose another with -d", path, parent.string()), 2);
  try {
    check_writable(parent.string());
  } catch (const Error& error) {
    throw Error(str("run folder {}: {} - choose another with -d", path, error.what()), 2);
  }
}

}  // namespace

void RunFolder::check(const std::string& path, const Grid& grid) {
  agree(grid, [&] {
    if (grid.rank() == 0) check_here(fs::absolute(path).lexically_normal().string());
  });
}

RunFolder::RunFolder(const std::string& path, const std::string& deck, const Grid& grid)
    : path_(fs::absolute(path).lexically_normal().string()) {
  if (path_.size() > 1 && path_.ends_with('/')) path_.pop_back();
  agree(grid, [&] {
    if (grid.rank() != 0) return;
    check_here(path_);
    std::error_code failed;
    fs::create_directories(path_, failed);
    require(!failed,
            str("cannot make run folder {} ({}) - choose another with -d", path_, failed.message()),
            2);
    check_here(path_);
    write_text(path_ + "/deck.ini", deck);
  });
}

std::string RunFolder::gradients(int64_t step) const {
  return str("{}/gradient-{}.h5", path_, step);
}

}  // namespace longstraw
