// A gradient against central differences of the loss, along random directions.
#pragma once

#include "reference/made_case.hpp"

#include <gtest/gtest.h>

#include <numeric>

namespace longstraw::reference {

inline double norm(const std::vector<double>& v) {
  return std::sqrt(std::inner_product(v.begin(), v.end(), v.begin(), 0.0));
}

struct SlopeCheck {
  int directions = 8;
  double h = 1e-7;          // of the weights' norm
  double tolerance = 1e-6;  // of the slope, or of that along a typical direction if it is larger
};

/// `values` runs the step's values only, in float64, with old log-probabilities that do not move
/// with the weights. Leaves its weights as they were.
inline void expect_slope_of_loss(MadeRun& values, const std::vector<double>& gradient,
                                 const SlopeCheck& check) {
  double* const weights = values.parameters.weights().data<double>();
  const std::vector<double> base(weights, weights + gradient.size());
  const double typical = norm(gradient) / std::sqrt(static_cast<double>(gradient.size()));
  const double h = check.h * norm(base);
  for (int direction = 0; direction < check.directions; ++direction) {
    std::vector<double> d(gradient.size());
    for (size_t i = 0; i < d.size(); ++i) d[i] = normal(17, 100 + direction, i);
    const double length = norm(d);
    const auto loss = [&](double step) {
      for (size_t i = 0; i < d.size(); ++i) weights[i] = base[i] + step * d[i] / length;
      values.stepper.begin_step(values.groups);
      values.run_ticks();
      return values.stepper.summary().loss;
    };
    const double slope = std::inner_product(d.begin(), d.end(), gradient.begin(), 0.0) / length;
    const double measured = (loss(h) - loss(-h)) / (2 * h);
    EXPECT_NEAR(measured, slope, check.tolerance * std::max(std::abs(slope), typical)) << direction;
  }
  std::copy(base.begin(), base.end(), weights);
}

}  // namespace longstraw::reference
