// Runs the tests of one program inside a session; under mpirun only rank 0 prints passing tests.
#include "longstraw/comm/grid.hpp"
#include "longstraw/comm/session.hpp"

#include <gtest/gtest.h>

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  longstraw::Session session(argc, argv);
  const auto grid = longstraw::Grid::world();
  if (grid.rank() != 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
  }
  const int failed = RUN_ALL_TESTS();
  return static_cast<int>(grid.max(int64_t{failed}));
}
