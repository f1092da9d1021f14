#include "longstraw/core/transfer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace longstraw {
namespace {

TEST(Transfer, SpeaksOnceOfWhatTakesLong) {
  testing::internal::CaptureStdout();
  {
    Transfer speaks("reading", 4 << 20, true), silent("nothing", 4 << 20, false);
    speaks.done(1 << 20);  // too early
    std::this_thread::sleep_for(std::chrono::milliseconds(2050));
    for (auto* transfer : {&speaks, &silent})
      for (int i = 0; i < 3; ++i) transfer->done(1 << 20);
  }
  const std::string said = testing::internal::GetCapturedStdout();
  EXPECT_THAT(said, testing::StartsWith("reading  50 % of 4 MiB  "));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

}  // namespace
}  // namespace longstraw
