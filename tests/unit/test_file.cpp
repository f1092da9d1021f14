#include "longstraw/io/file.hpp"
#include "support/errors.hpp"
#include "support/mounted.hpp"
#include "support/temporary_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace longstraw {
namespace {

using support::Mounted;
using support::put;
using support::refusal_of;
using support::small_disk;
using support::TemporaryFolder;
using testing::HasSubstr;

constexpr int64_t KiB = 1024;

void expect_what_is_held_is_not_needed_again(const Mounted& disk) {
  if (!disk) GTEST_SKIP() << "mounting is not allowed here";
  const std::string path = disk.path() + "/file";
  put(path, std::string(3000 * KiB, 'x'));
  take_room(path, 3000 * KiB);
  EXPECT_THAT(refusal_of([&] { take_room(path, 6000 * KiB); }).message,
              HasSubstr("no room for " + path + ": "));
}

TEST(TakeRoom, WhereTheSystemTakesIt) {
  const TemporaryFolder folder;
  expect_what_is_held_is_not_needed_again(Mounted(folder / "mounted", small_disk("4m")));
}

// ext2 can not.
TEST(TakeRoom, WhereItOnlyTellsWhatIsFree) {
  const TemporaryFolder folder;
  const std::string file = folder / "disk";
  put(file, std::string(4096 * KiB, '\0'));
  expect_what_is_held_is_not_needed_again(Mounted(
      folder / "mounted", "mkfs.ext2 -q -m 0 " + file + " && mount -t ext2 -o loop " + file));
}

// ramfs has no bounds.
TEST(TakeRoom, WhereItDoesNotEvenTell) {
  const TemporaryFolder folder;
  const Mounted disk(folder / "mounted", "mount -t ramfs none");
  if (!disk) GTEST_SKIP() << "mounting is not allowed here";
  take_room(disk.path() + "/file", int64_t{1} << 60);
}

}  // namespace
}  // namespace longstraw
