#include "longstraw/io/folder_lock.hpp"

#include "longstraw/core/check.hpp"
#include "longstraw/core/log.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace longstraw {
namespace {

enum class Taken { yes, by_another, never };  // never: the file system has no locks

// The whole file, by this opening of it rather than by process: closing another one of the same
// file frees nothing.
struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

Taken take(int descriptor) {
  auto lock = whole_file();
  if (::fcntl(descriptor, F_OFD_SETLK, &lock) == 0) return Taken::yes;
  return errno == EAGAIN || errno == EACCES ? Taken::by_another : Taken::never;
}

bool is_taken(int descriptor) {
  auto lock = whole_file();
  return ::fcntl(descriptor, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

std::string holder(int descriptor) {
  std::array<char, 300> text{};
  const auto got = ::pread(descriptor, text.data(), text.size(), 0);
  const std::string found(text.data(), got > 0 ? static_cast<size_t>(got) : 0);
  return found.empty() ? "which did not say its name" : found.substr(0, found.find('\n'));
}

[[noreturn]] void refuse(const std::string& folder, int descriptor) {
  const std::string who = holder(descriptor);
  ::close(descriptor);
  throw Error(str("run folder {} is in use by another job ({}) - wait for its end, or choose "
                  "another with -d",
                  folder, who),
              2);
}

// Whether the path still leads to the open file: its last holder may have removed it meanwhile.
bool still_there(int descriptor, const std::string& path) {
  struct stat open {
  }, there{};
  return ::fstat(descriptor, &open) == 0 && ::stat(path.c_str(), &there) == 0 &&
         open.st_ino == there.st_ino && open.st_dev == there.st_dev;
}

std::string own_name() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  const char* job = std::getenv("SLURM_JOB_ID");
  return str("host {}, process {}{}", host.data(), ::getpid(),
             job == nullptr ? "" : str(", Slurm job {}", job));
}

}  // namespace

FolderLock::FolderLock(const std::string& folder) : path_(folder + "/.lock") {
  for (;;) {
    const int descriptor = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    require(descriptor >= 0, "cannot make {} ({})", path_, std::strerror(errno));
    const Taken taken = take(descriptor);
    if (taken == Taken::by_another) refuse(folder, descriptor);
    if (taken == Taken::never)
      log(Level::warning,
          "{}: this file system has no locks ({}); see to it that no second job runs there", path_,
          std::strerror(errno));
    descriptor_ = descriptor;
    if (taken == Taken::never || still_there(descriptor, path_)) break;
    ::close(descriptor);
  }
  const std::string name = own_name() + "\n";
  const bool written =
      ::ftruncate(descriptor_, 0) == 0 &&
      ::pwrite(descriptor_, name.data(), name.size(), 0) == static_cast<ssize_t>(name.size());
  if (!written) log(Level::warning, "cannot write to {} ({})", path_, std::strerror(errno));
}

FolderLock::~FolderLock() {
  ::unlink(path_.c_str());
  ::close(descriptor_);
}

void FolderLock::check(const std::string& folder) {
  const int descriptor = ::open((folder + "/.lock").c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return;
  if (is_taken(descriptor)) refuse(folder, descriptor);
  ::close(descriptor);
}

}  // namespace longstraw
