#include "longstraw/sim/time_limit.hpp"

#include "longstraw/sim/clock.hpp"
#include "support/errors.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace longstraw {
namespace {

using support::expect_parts;
using support::refusal_of;

TEST(TimeLimit, IsReadAsSlurmReadsIt) {
  for (const auto& [text, seconds] :
       std::initializer_list<std::pair<const char*, int64_t>>{{"90", 5400},
                                                              {"02:30", 150},
                                                              {"00:02:00", 120},
                                                              {"30:00:01", 108001},
                                                              {"1-2", 93600},
                                                              {"1-2:03", 93780},
                                                              {"2-00:00:05", 172805},
                                                              {"0:1", 1},
                                                              {"00:00:01", 1}})
    EXPECT_EQ(parse_duration(text), seconds) << text;
  for (const char* text : {"", "0", "00:00:00", "x", "1:2:3:4", "-5", "1-", "5s", "1.5", "1 2",
                           "99999999999999999999", "00:-1:00"}) {
    const auto refused = refusal_of([&] { parse_duration(text); });
    expect_parts(refused.message, {text, "HH:MM:SS"});
    EXPECT_EQ(refused.status, 2) << text;
  }
  EXPECT_EQ(duration_text(120), "00:02:00");
  EXPECT_EQ(duration_text(90061), "1-01:01:01");
}

TEST(TimeLimit, CountsFromTheJobsStart) {
  EXPECT_FALSE(deadline_of(0, {.process_start = 1000}));
  EXPECT_EQ(deadline_of(60, {.process_start = 1000})->at, 1060);
  EXPECT_EQ(deadline_of(60, {.process_start = 1000, .start = 900})->at, 960);
  EXPECT_EQ(deadline_of(0, {.process_start = 1000, .end = 2000})->at, 2000);
  EXPECT_EQ(deadline_of(60, {.process_start = 1000, .start = 900, .end = 2000})->at, 960);
  const auto slurm = deadline_of(5000, {.process_start = 1000, .start = 900, .end = 2000});
  EXPECT_EQ(slurm->at, 2000);
  EXPECT_EQ(slurm->name, "end of the Slurm job");
  EXPECT_EQ(deadline_of(60, {})->name, "time limit 00:01:00");
}

TEST(TimeLimit, KnowsWhenThisProcessBegan) {
  ::unsetenv("SLURM_JOB_START_TIME");
  ::setenv("SLURM_JOB_END_TIME", "12345", 1);
  const JobTimes times = job_times();
  ::unsetenv("SLURM_JOB_END_TIME");
  EXPECT_GT(times.process_start, seconds_now() - 600);
  EXPECT_LE(times.process_start, seconds_now() + 1);
  EXPECT_FALSE(times.start);
  EXPECT_EQ(times.end, 12345.0);
}

TEST(Clock, StopsWhenATickAndADumpNoLongerFit) {
  const Deadline deadline{.at = 1000, .name = "time limit 00:02:00"};
  EXPECT_FALSE(time_is_up(deadline, 900, 0, 0));
  EXPECT_FALSE(time_is_up(deadline, 980, 4, 3));
  const auto up = time_is_up(deadline, 990, 4, 3);
  ASSERT_TRUE(up);
  EXPECT_EQ(*up, "time limit 00:02:00 in 10.0 s, a tick takes up to 4.0 s and a dump 3.0 s");
  EXPECT_TRUE(time_is_up(deadline, 998, 0, 0));
  expect_parts(*time_is_up(deadline, 1002, 4, 3), {"00:02:00", "over for 2.0 s"});
}

// The run of a whole prompt under a limit, with made-up times: every tick taken ends before it.
TEST(Clock, IsNeverLateWhateverTheLimit) {
  const double dump = 20;
  for (double limit = 30; limit < 1500; limit += 7.3) {
    TickTimes times;
    const Deadline deadline{.at = limit, .name = "limit"};
    double now = 10;  // start-up
    for (int tick = 0; tick < 60; ++tick) {
      const double work = tick < 40 ? 1 : 3;
      if (time_is_up(deadline, now, times.expected(work), dump)) break;
      // Attention makes a later tick of the same work longer, by a few percent.
      const double seconds = work * (8 + 0.05 * tick);
      times.add(work, seconds);
      now += seconds;
      EXPECT_TRUE(tick == 0 || now + dump <= limit) << limit << ", tick " << tick;
    }
  }
}

TEST(Clock, ExpectsOfATickNoLessThanTheSlowestPace) {
  TickTimes times;
  EXPECT_EQ(times.expected(5), 0);
  times.add(2, 8);
  times.add(4, 12);
  EXPECT_EQ(times.expected(1), 12);
  EXPECT_EQ(times.expected(6), 24);
  times.add(0, 30);  // an update
  EXPECT_EQ(times.expected(6), 30);
}

}  // namespace
}  // namespace longstraw
