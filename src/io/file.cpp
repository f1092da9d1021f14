#include "longstraw/io/file.hpp"

#include "longstraw/core/check.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace longstraw {
namespace {

[[noreturn]] void fail(const std::string& what, const std::string& path) {
  throw Error(str("{} {} ({})", what, path, std::strerror(errno)));
}

int opened(const std::string& path, int flags, const std::string& what) {
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  if (descriptor < 0) fail(what, path);
  return descriptor;
}

}  // namespace

DiskFile::DiskFile(int descriptor, std::string path)
    : descriptor_(descriptor), path_(std::move(path)) {}

DiskFile::DiskFile(DiskFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}

DiskFile& DiskFile::operator=(DiskFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  return *this;
}

DiskFile::~DiskFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

DiskFile DiskFile::open(const std::string& path) {
  // Without waiting for a writer, where the path is a pipe: that is refused with its size.
  return {opened(path, O_RDONLY | O_NONBLOCK, "cannot open"), path};
}

DiskFile DiskFile::create(const std::string& path) {
  return {opened(path, O_WRONLY | O_CREAT | O_TRUNC, "cannot create"), path};
}

DiskFile DiskFile::append(const std::string& path) {
  return {opened(path, O_WRONLY | O_CREAT | O_APPEND, "cannot append to"), path};
}

DiskFile DiskFile::change(const std::string& path) {
  return {opened(path, O_WRONLY, "cannot write to"), path};
}

int64_t DiskFile::size() const {
  struct stat facts {};
  if (::fstat(descriptor_, &facts) != 0) fail("cannot tell the size of", path_);
  require(S_ISREG(facts.st_mode), "{} is no regular file", path_);
  return facts.st_size;
}

void DiskFile::read(void* to, int64_t bytes, int64_t offset) const {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    const auto got = ::pread(descriptor_, at, std::min(bytes, largest_transfer), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("cannot read", path_);
    require(got > 0, "{} ends at byte {}, {} bytes too early (truncated)", path_, offset, bytes);
    at += got, bytes -= got, offset += got;
  }
}

void DiskFile::write(const void* from, int64_t bytes) {
  const auto* at = static_cast<const char*>(from);
  while (bytes > 0) {
    const auto put = ::write(descriptor_, at, std::min(bytes, largest_transfer));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail("cannot write", path_);
    at += put, bytes -= put;
  }
}

void DiskFile::write(const void* from, int64_t bytes, int64_t offset) {
  const auto* at = static_cast<const char*>(from);
  while (bytes > 0) {
    const auto put = ::pwrite(descriptor_, at, std::min(bytes, largest_transfer), offset);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail("cannot write", path_);
    at += put, bytes -= put, offset += put;
  }
}

void DiskFile::sync() {
  if (::fsync(descriptor_) != 0) fail("cannot flush to disk", path_);
}

std::string read_text(const std::string& path, int64_t largest) {
  const auto file = DiskFile::open(path);
  const int64_t bytes = file.size();
  require(bytes <= largest, "{} holds {} bytes, more than the {} allowed", path, bytes, largest);
  std::string text(bytes, '\0');
  file.read(text.data(), bytes, 0);
  return text;
}

void check_regular(const std::string& path) {
  std::error_code failed;
  require(!std::filesystem::exists(path, failed) || std::filesystem::is_regular_file(path, failed),
          "{} is no regular file", path);
}

// Asking the system for permission is not enough: quotas, read-only mounts and root tell otherwise.
void check_writable(const std::string& folder) {
  const std::string file = folder + "/.longstraw-probe";
  std::error_code ignored;
  try {
    auto disk = DiskFile::create(file);
    disk.write("probe");
    disk.sync();
  } catch (const Error& error) {
    std::filesystem::remove(file, ignored);
    throw Error(str("cannot write to {} ({})", folder, error.what()));
  }
  std::filesystem::remove(file, ignored);
}

// The free bytes of a file system say nothing of quotas; room that is taken does.
void take_room(const std::string& path, int64_t bytes) {
  const int descriptor = opened(path, O_WRONLY | O_CREAT, "cannot create");
  const int result = ::fallocate(descriptor, 0, 0, std::max<int64_t>(bytes, 1));
  const int reason = result == 0 ? 0 : errno;
  struct stat facts {};
  const int64_t held = ::fstat(descriptor, &facts) == 0 ? facts.st_blocks * 512 : 0;
  ::close(descriptor);
  if (reason == 0) return;
  std::error_code failed;
  const auto space = std::filesystem::space(std::filesystem::path(path).parent_path(), failed);
  const auto free = failed ? uintmax_t{0} : space.available;
  const auto needed = static_cast<uintmax_t>(std::max<int64_t>(0, bytes - held));
  const bool full = reason == ENOSPC || reason == EDQUOT;
  // Some file systems cannot take room (EOPNOTSUPP), and some cannot tell what they have.
  const bool known = !failed && space.capacity > 0;
  if (full || (known && free < needed))
    throw Error(str("no room for {}: {} bytes are needed, {} are free{}", path, needed, free,
                    reason == EDQUOT ? ", and a quota sets less" : ""));
}

void write_into_place(const std::string& path,
                      const std::function<void(const std::string& temporary)>& write) {
  const std::string temporary = path + ".tmp";
  try {
    write(temporary);
    DiskFile::append(temporary).sync();
    move_into_place(temporary, path);
  } catch (const std::exception&) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    throw;
  }
}

void write_text(const std::string& path, std::string_view text) {
  write_into_place(path, [&](const std::string& to) { DiskFile::create(to).write(text); });
}

void move_into_place(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) fail("cannot rename " + from + " to", to);
  const auto folder = std::filesystem::path(to).parent_path();
  sync_folder(folder.empty() ? "." : folder.string());
}

void sync_folder(const std::string& path) {
  const int descriptor = opened(path, O_RDONLY | O_DIRECTORY, "cannot open folder");
  const int result = ::fsync(descriptor);
  ::close(descriptor);
  // Some network file systems cannot flush a folder and say so with EINVAL.
  if (result != 0 && errno != EINVAL) fail("cannot flush folder", path);
}

}  // namespace longstraw
