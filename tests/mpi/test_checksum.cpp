#include "longstraw/io/checksum.hpp"

#include "support/errors.hpp"
#include "support/temporary_folder.hpp"

#include <gtest/gtest.h>

namespace longstraw {
namespace {

using support::expect_parts;
using support::refusal_of;

TEST(FileDigest, IsThatOfTheContentWhereTheFileIsOnePiece) {
  const support::TemporaryFolder folder;
  const std::string path = folder / "file", text((int64_t{1} << 20) + 7, 'a');
  folder.prepare([&] { support::put(path, text); });
  Digest digest;
  digest.add(std::string_view(text).substr(0, int64_t{1} << 20));
  digest.add(std::string_view(text).substr(int64_t{1} << 20));
  EXPECT_EQ(file_digest(path, Grid::world()), digest.text());
  folder.prepare([&] { support::put(path, ""); });
  EXPECT_EQ(file_digest(path, Grid::world()), Digest().text());
}

TEST(FileDigest, DoesNotDependOnTheRanksThatReadIt) {
  const support::TemporaryFolder folder;
  const std::string path = folder / "file";
  const auto with_last = [&](char last) {
    folder.prepare([&] {
      support::put(path, "start");
      std::filesystem::resize_file(path, 2 * digest_piece);
      std::ofstream(path, std::ios::binary | std::ios::app) << last;
    });
    const std::string digest = file_digest(path, Grid::world());
    EXPECT_EQ(digest, file_digest(path, Grid(MPI_COMM_SELF)));
    return digest;
  };
  EXPECT_NE(with_last('x'), with_last('y'));
}

TEST(FileDigest, RefusesOnAllRanksWhatIsNotThere) {
  const auto refused = refusal_of([] { file_digest("/nowhere/file", Grid::world()); });
  expect_parts(refused.message, {"cannot open", "/nowhere/file"});
  EXPECT_TRUE(refused.everywhere);
}

}  // namespace
}  // namespace longstraw
