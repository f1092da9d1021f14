// The sharded update against the plain loop over all parameters, and the reduction before it.
#include "longstraw/sim/optimizer.hpp"

#include "longstraw/core/random.hpp"
#include "reference/adamw.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>

namespace longstraw {
namespace {

// Sizes that ranks do not divide, and parameters that begin in one rank's part and end in
// another's.
ParameterList list_of(const std::vector<int64_t>& sizes) {
  ParameterList list;
  for (size_t i = 0; i < sizes.size(); ++i) list.add(str("p{}", i), {sizes[i]});
  return list;
}

double value(uint64_t sequence, uint64_t index) { return random_unit(1, sequence, index) - 0.5; }

class OptimizerOnRanks : public testing::Test {
 protected:
  void make(DType type, const std::vector<int64_t>& sizes) {
    parameters_.emplace(ledger_, type, list_of(sizes));
    fill(parameters_->weights(), [](int64_t i) { return value(0, i); });
  }
  template <class Value>
  void fill(const Tensor& to, const Value& of) {
    dispatch(to.type(), [&]<class T>(T) {
      for (int64_t i = 0; i < to.size(); ++i) to.data<T>()[i] = static_cast<T>(of(i));
    });
  }
  std::vector<double> values(const Tensor& from) const {
    std::vector<double> all(from.size());
    dispatch(from.type(), [&]<class T>(T) {
      for (int64_t i = 0; i < from.size(); ++i) all[i] = from.data<T>()[i];
    });
    return all;
  }
  // Rank r's own gradient in step s; the sum over ranks is what the update must see.
  double own(int step, int rank, int64_t i) const { return value(10 + 100 * step + rank, i); }
  std::vector<double> sum(int step) const {
    std::vector<double> all(parameters_->list().size(), 0.0);
    for (int r = 0; r < grid_.size(); ++r)
      for (size_t i = 0; i < all.size(); ++i) all[i] += own(step, r, static_cast<int64_t>(i));
    return all;
  }

  Grid grid_ = Grid::world();
  Ledger ledger_;
  Stream stream_;
  std::optional<Parameters> parameters_;
};

TEST_F(OptimizerOnRanks, StepsAreThoseOfThePlainLoop) {
  // A clip that bites, one that does not, and none.
  for (double max_norm : {0.5, 1e6, 0.0})
    for (const auto& sizes : {std::vector<int64_t>{3}, {7, 1, 64, 2}, {1}, {500, 13}}) {
      make(DType::float64, sizes);
      const OptimizerSettings settings{
          .lr = 0.1, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.1, .max_grad_norm = max_norm};
      Optimizer optimizer(ledger_, grid_, *parameters_, settings);
      std::vector<double> weights = values(parameters_->weights());
      std::vector<double> m(weights.size(), 0.0), v(weights.size(), 0.0);
      for (int step = 1; step <= 3; ++step) {
        fill(parameters_->gradients(), [&](int64_t i) { return own(step, grid_.rank(), i); });
        const ReducedGradient reduced({grid_, ledger_, stream_, *parameters_});
        const double norm = reduced.norm(grid_, stream_), lr = 0.1 / step;
        optimizer.update(stream_, *parameters_, reduced, norm, lr);

        const auto gradient = sum(step);
        double squares = 0;
        for (double g : gradient) squares += g * g;
        EXPECT_NEAR(norm, std::sqrt(squares), 1e-13 * norm);
        const double scale = max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
        reference::adamw(weights, m, v, gradient,
                         {.lr = lr,
                          .beta1 = settings.beta1,
                          .beta2 = settings.beta2,
                          .eps = settings.eps,
                          .weight_decay = settings.weight_decay,
                          .step = step,
                          .grad_scale = scale});
      }
      const auto got = values(parameters_->weights());
      for (size_t i = 0; i < weights.size(); ++i)
        EXPECT_NEAR(got[i], weights[i], 1e-14) << i;  // three steps of a few roundings
      EXPECT_EQ(optimizer.updates(), 3);
    }
}

TEST_F(OptimizerOnRanks, MomentsAreCutOverTheRanks) {
  make(DType::float32, {1000, 7});
  const Optimizer optimizer(ledger_, grid_, *parameters_, {});
  EXPECT_EQ(ledger_.entries().find("moments")->second.current, 2 * 4 * grid_.mine(1007).size());
}

TEST_F(OptimizerOnRanks, GradientIsReducedInTheOrderOfRanks) {
  // Larger than what is exchanged at a time.
  for (const auto& sizes : {std::vector<int64_t>{5}, {3 * (int64_t{1} << 20) + 17, 2}}) {
    make(DType::float64, sizes);
    fill(parameters_->gradients(), [&](int64_t i) { return own(1, grid_.rank(), i); });
    const ReducedGradient reduced({grid_, ledger_, stream_, *parameters_});
    const auto expected = sum(1);
    const Range mine = grid_.mine(parameters_->list().size());
    EXPECT_EQ(reduced.mine(), mine);
    const auto part = values(reduced.values());
    for (int64_t i = 0; i < mine.size(); ++i) ASSERT_EQ(part[i], expected[mine.begin + i]) << i;
  }
}

TEST_F(OptimizerOnRanks, AnyRangeOfTheGradientIsGathered) {
  make(DType::float32, {40, 3});
  fill(parameters_->gradients(), [&](int64_t i) { return i + 1000 * grid_.rank(); });
  const ReducedGradient reduced({grid_, ledger_, stream_, *parameters_});
  const double ranks = grid_.size();
  for (const Range range : {Range{0, 43}, {0, 1}, {20, 23}, {42, 43}, {7, 7}}) {
    const Field to(ledger_, "test", DType::float32, {range.size()});
    reduced.gather(grid_, to, range);
    const auto got = values(to);
    for (int64_t i = 0; i < range.size(); ++i)
      EXPECT_EQ(got[i], ranks * static_cast<double>(range.begin + i) + 500 * ranks * (ranks - 1));
  }
}

TEST_F(OptimizerOnRanks, NumbersThatAreNotFiniteReachTheNormOnAllRanks) {
  for (double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    make(DType::float32, {10, 10});
    const bool last = grid_.rank() == grid_.size() - 1;
    fill(parameters_->gradients(), [&](int64_t i) { return i == 3 && last ? bad : 1.0; });
    const ReducedGradient reduced({grid_, ledger_, stream_, *parameters_});
    EXPECT_FALSE(std::isfinite(reduced.norm(grid_, stream_)));
  }
}

}  // namespace
}  // namespace longstraw
