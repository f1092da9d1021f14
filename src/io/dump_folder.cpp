#include "longstraw/io/dump_folder.hpp"

#include "longstraw/core/log.hpp"
#include "longstraw/io/file.hpp"

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>
#include <tuple>

namespace longstraw {
namespace {

namespace fs = std::filesystem;

bool is_dump(const fs::path& file) {
  const std::string name = file.filename().string();
  const auto begin = name.begin() + std::min<size_t>(name.size(), 5);
  return name.starts_with("dump-") && name.ends_with(".h5") &&
         std::all_of(begin, name.end() - 3, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

DumpFolder::DumpFolder(std::string path, const Grid& grid) : path_(std::move(path)), grid_(grid) {}

std::optional<std::string> DumpFolder::latest() const {
  std::string found;
  agree(grid_, [&] {
    std::error_code failed;
    const fs::path link = fs::path(path_) / "latest";
    if (grid_.rank() == 0 && fs::is_symlink(link, failed))
      found = (fs::path(path_) / fs::read_symlink(link)).string();
  });
  found = grid_.broadcast(found, 0);
  if (found.empty()) return std::nullopt;
  return found;
}

std::vector<std::string> DumpFolder::unfinished() const {
  std::vector<std::string> names;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(path_, failed))
    if (entry.path().extension() == ".tmp") names.push_back(entry.path().string());
  std::sort(names.begin(), names.end());
  return names;
}

void DumpFolder::go_on_from(const DumpReader& dump) {
  std::error_code failed;
  if (fs::equivalent(fs::path(dump.file().path()).parent_path(), path_, failed))
    stored_ = dump.stored();
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
    prune(writer.name(), keep);
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
  // Clocks of machines differ and are set back: the one just written is the newest for certain.
  std::vector<std::tuple<bool, fs::file_time_type, fs::path>> dumps;
  for (const auto& entry : fs::directory_iterator(path_))
    if (is_dump(entry.path()))
      dumps.emplace_back(entry.path().filename() == newest, entry.last_write_time(), entry.path());
  std::sort(dumps.rbegin(), dumps.rend());
  std::set<std::string> needed;
  for (size_t i = 0; i < dumps.size(); ++i) {
    const fs::path& dump = std::get<fs::path>(dumps[i]);
    if (static_cast<int64_t>(i) >= keep) {
      fs::remove(dump);
      continue;
    }
    try {
      std::istringstream names(DumpFileReader(dump.string()).attribute("segments"));
      for (std::string name; names >> name;) needed.insert(name);
    } catch (const Error& error) {
      // What it needs is not known: nothing is removed.
      log(Level::warning, "{}", error.what());
      return;
    }
  }
  for (const auto& entry : fs::directory_iterator(path_)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("prompt-") && name.ends_with(".h5") && !needed.contains(name))
      fs::remove(entry.path());
  }
}

}  // namespace longstraw
