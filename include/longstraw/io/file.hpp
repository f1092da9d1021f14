// Plain files through the operating system: reads and writes that are complete or throw, and are on
// the disk when they say so.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace longstraw {

/// Bytes that one call of the system or of HDF5 moves at most: some count them in 32 bits.
constexpr int64_t largest_transfer = int64_t{1} << 30;

/// Owner of one open file. Errors name the path and the system's reason.
class DiskFile {
 public:
  static DiskFile open(const std::string& path);    // for reading
  static DiskFile create(const std::string& path);  // for writing; an older file is emptied
  static DiskFile append(const std::string& path);  // for writing at the end
  static DiskFile change(const std::string& path);  // for writing into a file that is there
  DiskFile(DiskFile&& other) noexcept;
  DiskFile& operator=(DiskFile&& other) noexcept;
  ~DiskFile();

  int64_t size() const;
  /// `bytes` bytes from `offset`; refuses a file that ends before.
  void read(void* to, int64_t bytes, int64_t offset) const;
  /// Appends.
  void write(const void* from, int64_t bytes);
  void write(std::string_view text) { write(text.data(), static_cast<int64_t>(text.size())); }
  /// From `offset`.
  void write(const void* from, int64_t bytes, int64_t offset);
  /// Returns when everything written is on the disk.
  void sync();

 private:
  DiskFile(int descriptor, std::string path);
  int descriptor_ = -1;
  std::string path_;
};

/// The whole of a text file; refuses one larger than `largest` bytes.
std::string read_text(const std::string& path, int64_t largest);
/// Refuses what is there but no regular file: reading a pipe or a device may never end.
void check_regular(const std::string& path);
/// Refuses a folder in which no file can be made, by making one and removing it again.
void check_writable(const std::string& folder);
/// Takes room on the disk for the first `bytes` bytes of the file at `path`, which is made if it is
/// not there; refuses, naming bytes still needed and free, when there is none. Where the file
/// system takes none, it goes by what is free; where that is unknown too, nothing is refused.
void take_room(const std::string& path, int64_t bytes);
/// Puts what `write` writes to the path it is given, path.tmp, on the disk and then at `path`, so
/// that nobody sees half of it; nothing is left when that fails.
void write_into_place(const std::string& path,
                      const std::function<void(const std::string& temporary)>& write);
/// So for a text.
void write_text(const std::string& path, std::string_view text);
/// Renames and flushes the folder's entry to disk.
void move_into_place(const std::string& from, const std::string& to);
/// Flushes the entries of a folder.
void sync_folder(const std::string& path);

}  // namespace longstraw
