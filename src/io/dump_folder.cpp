#include "longstraw/io/dump_folder.hpp"

#include "longstraw/core/log.hpp"
#include "longstraw/io/file.hpp"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>
#include <sstream>
#include <tuple>

namespace longstraw {
namespace {

namespace fs = std::filesystem;

struct Kept {
  fs::path path;
  fs::file_time_type time;
};

// The newest first.
std::vector<Kept> dumps_in(const std::string& folder) {
  std::vector<Kept> dumps;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(folder, failed))
    if (has_dump_name(entry.path().string()))
      dumps.push_back({entry.path(), entry.last_write_time(failed)});
  std::ranges::sort(dumps, std::greater<>(),
                    [](const Kept& k) { return std::tie(k.time, k.path); });
  return dumps;
}

}  // namespace

bool has_dump_name(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  return name.starts_with("dump-") && name.ends_with(".h5") &&
         std::all_of(name.begin() + 5, name.end() - 3, [](char c) { return c >= '0' && c <= '9'; });
}

DumpFolder::DumpFolder(std::string path, const Grid& grid) : path_(std::move(path)), grid_(grid) {}

std::optional<std::string> DumpFolder::latest() const {
  std::string found;
  agree(grid_, [&] {
    std::error_code failed;
    const fs::path link = fs::path(path_) / "latest";
    if (grid_.rank() != 0) return;
    if (fs::is_symlink(link, failed))
      found = (fs::path(path_) / fs::read_symlink(link)).string();
    else if (const auto dumps = dumps_in(path_); !dumps.empty())
      found = dumps.front().path.string();  // killed before it could make the link
  });
  found = grid_.broadcast(found, 0);
  if (found.empty()) return std::nullopt;
  return found;
}

std::vector<std::string> DumpFolder::dumps() const {
  std::vector<std::string> paths;
  for (const Kept& kept : dumps_in(path_)) paths.push_back(kept.path.string());
  return paths;
}

std::vector<std::string> DumpFolder::unfinished() const {
  std::vector<std::string> names;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(path_, failed))
    if (entry.path().extension() == ".tmp") names.push_back(entry.path().string());
  std::sort(names.begin(), names.end());
  return names;
}

bool DumpFolder::go_on_from(const DumpReader& dump) {
  const fs::path file(dump.file().path());
  std::error_code failed;
  const bool here = fs::equivalent(file.parent_path(), path_, failed);
  if (here) stored_ = dump.stored();
  if (!here || grid_.rank() != 0) return here;
  // Else a run that went back and was killed would go on from where it had been before.
  try {
    const std::string name = fs::canonical(file).filename().string();
    if (fs::read_symlink(fs::path(path_) / "latest", failed) != name) point_latest_to(name);
  } catch (const std::exception& error) {
    log(Level::warning, "{} is not made the latest dump: {}", file.string(), error.what());
  }
  return here;
}

int64_t DumpFolder::write(int64_t ticks, int64_t keep,
                          const std::function<void(DumpFields&)>& list) {
  agree(grid_, [&] {
    if (grid_.rank() != 0) return;
    std::error_code failed;
    fs::create_directories(path_, failed);
    require(!failed, "cannot make folder {} ({})", path_, failed.message());
    for (const auto& file : unfinished()) fs::remove(file, failed);
  });
  DumpWriter writer(path_, ticks, grid_, stored_);
  list(writer);
  stored_ = writer.complete();
  agree(grid_, [&] {
    if (grid_.rank() != 0) return;
    point_latest_to(writer.name());
    try {
      prune(writer.name(), keep);
    } catch (const std::exception& error) {  // the dump is there all the same
      log(Level::warning, "older dumps are left: {}", error.what());
    }
  });
  return writer.bytes();
}

void DumpFolder::point_latest_to(const std::string& name) const {
  const fs::path temporary = fs::path(path_) / "latest.tmp";
  fs::remove(temporary);
  fs::create_symlink(name, temporary);
  move_into_place(temporary.string(), path_ + "/latest");
}

void DumpFolder::prune(const std::string& newest, int64_t keep) const {
  auto dumps = dumps_in(path_);
  // Clocks of machines differ and are set back: the one just written is the newest for certain.
  std::ranges::stable_partition(dumps, [&](const Kept& k) { return k.path.filename() == newest; });
  std::set<std::string> needed;
  for (size_t i = 0; i < dumps.size(); ++i) {
    if (static_cast<int64_t>(i) >= keep) {
      fs::remove(dumps[i].path);
      continue;
    }
    // Where that is not known, nothing more is removed.
    std::istringstream names(DumpFileReader(dumps[i].path.string()).attribute("segments"));
    for (std::string name; names >> name;) needed.insert(name);
  }
  for (const auto& entry : fs::directory_iterator(path_)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("prompt-") && name.ends_with(".h5") && !needed.contains(name))
      fs::remove(entry.path());
  }
}

}  // namespace longstraw
