#include "longstraw/io/file.hpp"
#include "support/errors.hpp"
#include "support/temporary_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <string>

namespace longstraw {
namespace {

using support::put;
using support::refusal_of;
using support::TemporaryFolder;
using testing::HasSubstr;

constexpr int64_t KiB = 1024;

// A file system of 4 MiB of its own, mounted by a command that ends in its place.
class Mounted {
 public:
  explicit Mounted(const std::string& command)
      : there_(::geteuid() == 0 && run(command + " " + path()) == 0) {}
  ~Mounted() {
    if (there_) run("umount " + path());
  }
  Mounted(const Mounted&) = delete;
  Mounted& operator=(const Mounted&) = delete;
  explicit operator bool() const { return there_; }
  std::string path() const { return folder_.path(); }

 private:
  static int run(const std::string& command) { return std::system((command + " 2>&1").c_str()); }
  TemporaryFolder folder_;
  bool there_;
};

void expect_what_is_held_is_not_needed_again(const Mounted& disk) {
  if (!disk) GTEST_SKIP() << "mounting is not allowed here";
  const std::string path = disk.path() + "/file";
  put(path, std::string(3000 * KiB, 'x'));
  take_room(path, 3000 * KiB);
  EXPECT_THAT(refusal_of([&] { take_room(path, 6000 * KiB); }).message,
              HasSubstr("no room for " + path + ": "));
}

TEST(TakeRoom, WhereTheSystemTakesIt) {
  expect_what_is_held_is_not_needed_again(Mounted("mount -t tmpfs -o size=4m none"));
}

// ext2 can not.
TEST(TakeRoom, WhereItOnlyTellsWhatIsFree) {
  const TemporaryFolder image;
  const std::string file = image / "disk";
  put(file, std::string(4096 * KiB, '\0'));
  expect_what_is_held_is_not_needed_again(
      Mounted("mkfs.ext2 -q -m 0 " + file + " && mount -t ext2 -o loop " + file));
}

// ramfs has no bounds.
TEST(TakeRoom, WhereItDoesNotEvenTell) {
  const Mounted disk("mount -t ramfs none");
  if (!disk) GTEST_SKIP() << "mounting is not allowed here";
  take_room(disk.path() + "/file", int64_t{1} << 60);
}

}  // namespace
}  // namespace longstraw
