// Runs the tests of one program inside a session; under mpirun the ranks after 0 print failures
// only.
#include "longstraw/comm/grid.hpp"
#include "longstraw/comm/session.hpp"

#include <gtest/gtest.h>

#include <iostream>
#include <memory>
#include <string>

namespace {

class FailurePrinter : public testing::EmptyTestEventListener {
 public:
  explicit FailurePrinter(int rank) : rank_(rank) {}
  void OnTestStart(const testing::TestInfo& test) override {
    test_ = std::string(test.test_suite_name()) + "." + test.name();
  }
  // Must not ask for the current test: the caller holds the lock that this would wait for.
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::cerr << longstraw::str("rank {}: {}: {}:{}: {}\n", rank_, test_,
                                result.file_name() ? result.file_name() : "", result.line_number(),
                                result.message());
  }

 private:
  int rank_;
  std::string test_;
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
