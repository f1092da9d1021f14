#include "longstraw/io/folder_lock.hpp"

#include "longstraw/io/run_folder.hpp"
#include "support/errors.hpp"
#include "support/temporary_folder.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <memory>

#include <sys/wait.h>
#include <unistd.h>

namespace longstraw {
namespace {

namespace fs = std::filesystem;
using support::expect_parts;
using support::refusal_of;
using support::TemporaryFolder;

TEST(FolderLock, KeepsASecondOneOutAndNamesTheFirst) {
  const TemporaryFolder folder;
  if (Grid::world().rank() != 0) return;
  FolderLock::check(folder.path());
  EXPECT_TRUE(fs::is_empty(folder.path()));
  {
    const FolderLock held(folder.path());
    for (const auto& refused : {refusal_of([&] { FolderLock::check(folder.path()); }),
                                refusal_of([&] { const FolderLock second(folder.path()); })}) {
      expect_parts(refused.message,
                   {folder.path(), "another job", "host", str("process {}", ::getpid()), "-d"});
      EXPECT_EQ(refused.status, 2);
    }
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
  const FolderLock again(folder.path());
}

// What a killed job leaves is a file without a lock.
TEST(FolderLock, DoesNotOutlastAKilledProcess) {
  const TemporaryFolder folder;
  if (Grid::world().rank() != 0) return;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const FolderLock held(folder.path());
    [[maybe_unused]] const auto written = ::write(ready[1], "x", 1);
    for (;;) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  expect_parts(refusal_of([&] { FolderLock::check(folder.path()); }).message,
               {str("process {}", child)});
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(fs::exists(folder / ".lock"));
  FolderLock::check(folder.path());
  const FolderLock next(folder.path());
  ::close(ready[0]), ::close(ready[1]);
}

TEST(FolderLock, AllRanksRefuseAFolderInUse) {
  const TemporaryFolder folder;
  const Grid grid = Grid::world();
  const RunFolder first(folder / "run", RunFolder::Earlier::allowed, grid);
  for (const auto& refused :
       {refusal_of([&] { RunFolder::check(folder / "run", RunFolder::Earlier::allowed, grid); }),
        refusal_of([&] { RunFolder(folder / "run", RunFolder::Earlier::allowed, grid); })}) {
    expect_parts(refused.message, {folder / "run", "another job"});
    EXPECT_EQ(refused.status, 2);
    EXPECT_TRUE(refused.everywhere);
  }
}

}  // namespace
}  // namespace longstraw
