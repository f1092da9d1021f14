// A file system of its own for a test, gone afterwards.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace longstraw::support {

class Mounted {
 public:
  /// Mounts at `path`, which is made, by a command that the path is put behind.
  Mounted(const std::string& path, const std::string& command) : path_(path) {
    std::filesystem::create_directories(path);
    there_ = ::geteuid() == 0 && run(command + " " + path) == 0;
  }
  ~Mounted() {
    if (there_) run("umount -l " + path_);
  }
  Mounted(const Mounted&) = delete;
  Mounted& operator=(const Mounted&) = delete;
  /// False where mounting is not allowed.
  explicit operator bool() const { return there_; }
  const std::string& path() const { return path_; }

 private:
  static int run(const std::string& command) {
    return std::system((command + " >/dev/null 2>&1").c_str());
  }
  std::string path_;
  bool there_ = false;
};

/// A command of `Mounted` for a small disk, of a size such as 4m.
inline std::string small_disk(const std::string& size) {
  return "mount -t tmpfs -o size=" + size + " none";
}

}  // namespace longstraw::support
