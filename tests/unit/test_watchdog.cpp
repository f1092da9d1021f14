#include "longstraw/comm/watchdog.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longstraw {
namespace {

using testing::HasSubstr;

RankSign sign(int rank, int64_t begun, const std::string& collective, double still = 10) {
  return {.rank = rank,
          .moment = {.phase = "capture block 3", .collective = collective, .begun = begun},
          .still_seconds = still};
}

TEST(HangText, NamesRanksThatGaveNoSign) {
  const auto text = hang_text({sign(0, 7, "all-to-all"), sign(2, 7, "all-to-all")}, 4, 10);
  ASSERT_TRUE(text);
  EXPECT_THAT(*text, HasSubstr("ranks 0, 2: capture block 3, in a collective (all-to-all), 7 "));
  EXPECT_THAT(*text, HasSubstr("ranks 1, 3: no sign"));
  EXPECT_THAT(*text, HasSubstr("likely hung: ranks 1, 3"));
}

TEST(HangText, NamesRanksBehindInCollectives) {
  const auto text =
      hang_text({sign(0, 7, "sum"), sign(1, 7, "sum"), sign(2, 6, ""), sign(3, 7, "sum")}, 4, 10);
  ASSERT_TRUE(text);
  EXPECT_THAT(*text, HasSubstr("ranks 0, 1, 3: "));
  EXPECT_THAT(*text, HasSubstr("rank 2: capture block 3, computing or at files, 6 collectives"));
  EXPECT_THAT(*text, HasSubstr("likely hung: rank 2"));
}

TEST(HangText, BlamesNobodyWhenAllWaitAlike) {
  const auto text = hang_text({sign(0, 7, "sum"), sign(1, 7, "sum"), sign(2, 7, "sum")}, 3, 10);
  ASSERT_TRUE(text);
  EXPECT_THAT(*text, HasSubstr("ranks 0-2: "));
  EXPECT_THAT(*text, HasSubstr("network"));
}

TEST(HangText, IsNoneWhileARankGetsOn) {
  EXPECT_FALSE(hang_text({sign(0, 7, "sum"), sign(1, 6, "", 0.5)}, 2, 10));
  EXPECT_FALSE(hang_text({}, 2, 10));
}

}  // namespace
}  // namespace longstraw
