#include "longstraw/kernels/blas_setup.hpp"

#include "gemm/cpu.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace longstraw::test {
namespace {

using testing::HasSubstr;

struct Outcome {
  int status = -1;
  std::string output;
};

/// Runs the probe with only these variables of OpenBLAS set.
Outcome probe(const std::string& arguments, const std::string& variables = "") {
  const std::string command =
      "env -u OPENBLAS_CORETYPE -u OPENBLAS_NUM_THREADS -u OMP_NUM_THREADS "
      "-u LONGSTRAW_STARTED_AGAIN ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0 " +
      variables + " " + BLAS_PROBE + " " + arguments + " 2>&1";
  Outcome outcome;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> part;
  while (const size_t count = fread(part.data(), 1, part.size(), pipe))
    outcome.output.append(part.data(), count);
  outcome.status = WEXITSTATUS(pclose(pipe));
  return outcome;
}

const std::string old_blas = std::string("LD_PRELOAD=") + OLD_BLAS;

/// The name that this processor's kernels go by.
std::string best_kernel() {
  return vectors_of_this_cpu() == VectorSet::avx512 ? "SkylakeX" : "Haswell";
}
/// Whether this processor and this library leave nothing to choose.
bool no_choice_here() {
  return vectors_of_this_cpu() == VectorSet::basic ||
         blas_facts().config.find("DYNAMIC_ARCH") == std::string::npos;
}
constexpr auto why_skipped = "this processor or this BLAS has one kernel set only";

TEST(BlasCheck, PassesWhereProductsAreRight) {
  check_blas();
  EXPECT_EQ(probe("check").status, 0);
}

TEST(BlasCheck, RefusesAProductThatIsOffInOneElement) {
  const Outcome outcome = probe("check", std::string("LD_PRELOAD=") + WRONG_BLAS);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.output, HasSubstr("refused: matrix products are wrong here"));
  EXPECT_THAT(outcome.output, HasSubstr("float32"));
  EXPECT_THAT(outcome.output, HasSubstr("element (129, 69)"));
}

TEST(BlasKernel, UsersOwnSlowChoiceIsKeptAndExplained) {
  if (no_choice_here()) GTEST_SKIP() << why_skipped;
  const Outcome outcome = probe("choose", "OPENBLAS_CORETYPE=Prescott");
  EXPECT_THAT(outcome.output, HasSubstr("kernel=Prescott\n"));
  EXPECT_THAT(outcome.output, HasSubstr("better=" + best_kernel()));
}

TEST(BlasKernel, FactsNameTheSettingThatMakesItSlow) {
  if (no_choice_here()) GTEST_SKIP() << why_skipped;
  // started again for the threads, or not at all
  for (const std::string threads : {"", " OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1"}) {
    const Outcome outcome = probe("choose", "OPENBLAS_CORETYPE=Prescott" + threads);
    EXPECT_THAT(outcome.output, HasSubstr("kernel=Prescott\n"));
    EXPECT_THAT(outcome.output, HasSubstr("slow=OPENBLAS_CORETYPE=Prescott is set"));
    EXPECT_THAT(outcome.output, HasSubstr("unset it"));
  }
}

TEST(BlasKernel, ALibraryThatFellBackGetsItsBestKernel) {
  if (no_choice_here()) GTEST_SKIP() << why_skipped;
  const Outcome before = probe("facts", old_blas);
  EXPECT_THAT(before.output, HasSubstr("kernel=Prescott\n"));
  EXPECT_THAT(before.output, HasSubstr("set OPENBLAS_CORETYPE=" + best_kernel()));
  const Outcome after = probe("choose 'an argument'", old_blas);
  EXPECT_THAT(after.output, HasSubstr("kernel=" + best_kernel() + "\n"));
  EXPECT_THAT(after.output, HasSubstr("slow=\nagain=kernel\nlast=an argument\n"));
}

TEST(BlasKernel, IsTriedOnce) {
  if (no_choice_here()) GTEST_SKIP() << why_skipped;
  const Outcome outcome = probe("choose", old_blas + " STAND_IN_IS_DEAF=1");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.output, HasSubstr("was tried and not followed"));
}

TEST(BlasKernel, OneThreadUnlessTheUserSaysOtherwise) {
  EXPECT_THAT(probe("choose").output, HasSubstr("threads=1\n"));
  // nothing to change: not started again
  for (const std::string threads : {"1", "2"})
    EXPECT_THAT(
        probe("choose", "OPENBLAS_NUM_THREADS=" + threads + " OMP_NUM_THREADS=" + threads).output,
        HasSubstr("again=no\n"));
}

}  // namespace
}  // namespace longstraw::test
