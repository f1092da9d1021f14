// Keeps two jobs from working in one folder.
#pragma once

#include <string>

namespace longstraw {

/// A lock of the operating system on FOLDER/.lock, held by this process for as long as this lives;
/// it does not outlast the process, however that ends. The file tells who holds it and is removed
/// at the end.
class FolderLock {
 public:
  /// Throws `Error` of status 2, naming host and process of the holder, if another process has it.
  explicit FolderLock(const std::string& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  /// Throws the same if another process has it, and takes nothing.
  static void check(const std::string& folder);

 private:
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace longstraw
