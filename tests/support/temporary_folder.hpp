// A folder of its own for a test, seen by all ranks, gone afterwards.
#pragma once

#include "longstraw/comm/grid.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace longstraw::support {

class TemporaryFolder {
 public:
  /// Collective over all ranks, as is the destructor.
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "longstraw-XXXXXX").string();
    if (grid_.rank() == 0) require(::mkdtemp(name.data()) != nullptr, "no temporary folder");
    path_ = grid_.broadcast(name, 0);
  }
  ~TemporaryFolder() {
    grid_.barrier();
    std::error_code ignored;
    if (grid_.rank() == 0) std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

  /// Runs `act` on rank 0 while the others wait.
  template <class Act>
  void prepare(Act&& act) const {
    grid_.barrier();
    if (grid_.rank() == 0) act();
    grid_.barrier();
  }

 private:
  Grid grid_ = Grid::world();
  std::string path_;
};

inline void put(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string get(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace longstraw::support
