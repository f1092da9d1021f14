// Runs the tests of one program inside a session; under mpirun the ranks after 0 print failures
// only.
#include "longstraw/comm/grid.hpp"
#include "longstraw/comm/session.hpp"

#include <gtest/gtest.h>

#include <iostream>
#include <memory>

namespace {

class FailurePrinter : public testing::EmptyTestEventListener {
 public:
  explicit FailurePrinter(int rank) : rank_(rank) {}
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    std::cerr << longstraw::str("rank {}: {}.{}: {}:{}: {}\n", rank_,
                                test ? test->test_suite_name() : "", test ? test->name() : "",
                                result.file_name() ? result.file_name() : "", result.line_number(),
                                result.message());
  }

 private:
  int rank_;
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  longstraw::Session session(argc, argv);
  const auto grid = longstraw::Grid::world();
  if (grid.rank() != 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(std::make_unique<FailurePrinter>(grid.rank()).release());
  }
  const int failed = RUN_ALL_TESTS();
  return static_cast<int>(grid.max(int64_t{failed}));
}
