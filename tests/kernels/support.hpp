// What the tests of the kernels share: arrays in the type under test, and the comparisons.
#pragma once

#include "longstraw/core/tensor.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <vector>

namespace longstraw::test {

using Array = std::vector<double>;
using Arrays = std::vector<Array>;

/// Sizes around the widths of vectors and blocks.
inline const std::vector<int64_t> sizes = {1, 3, 64, 65, 597};
inline const std::vector<int64_t> sizes_and_none = {0, 1, 3, 64, 65, 597};

/// Normal numbers that a float holds exactly, so that both types see the same input.
inline Array random_array(int64_t size, unsigned seed, double spread = 1.0) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal(0.0, spread);
  Array values(size);
  for (double& value : values) value = static_cast<float>(normal(engine));
  return values;
}

/// What bfloat16 keeps of the values.
inline Array rounded(Array values) {
  for (double& value : values) value = bfloat16(value);
  return values;
}

/// Largest relative error of a rounding to bfloat16, of 8 bits.
constexpr double half_rounding = 0x1p-8;

/// Memory of the type under test behind a tensor; `padding` elements that nobody may touch lie
/// between the rows (and after the last).
class Held {
 public:
  Held(DType type, std::vector<int64_t> extents, const Array& values, int64_t padding = 0)
      : type_(type), rows_(extents[0]), row_size_(1), padding_(padding) {
    for (size_t i = 1; i < extents.size(); ++i) row_size_ *= extents[i];
    EXPECT_EQ(static_cast<int64_t>(values.size()), rows_ * row_size_);
    memory_.resize(rows_ * (row_size_ + padding_), untouched);
    single_.assign(memory_.begin(), memory_.end());
    half_.assign(memory_.size(), bfloat16(untouched));
    for (int64_t i = 0; i < rows_ * row_size_; ++i) set(at(i), values[i]);
    void* data = type == DType::float32   ? static_cast<void*>(single_.data())
                 : type == DType::float64 ? static_cast<void*>(memory_.data())
                                          : half_.data();
    tensor_ = Tensor(data, type, {rows_, row_size_ + padding_}).columns(0, row_size_);
    if (extents.size() == 1) tensor_ = Tensor(data, type, {rows_});
    if (extents.size() == 3) tensor_ = tensor_.reshape({rows_, extents[1], extents[2]});
  }
  Held(DType type, std::vector<int64_t> extents, double value, int64_t padding = 0)
      : Held(type, extents, Array(count(extents), value), padding) {}

  operator const Tensor&() const { return tensor_; }
  const Tensor& tensor() const { return tensor_; }

  /// The elements; fails if the padding was written.
  Array values() const {
    Array result(rows_ * row_size_);
    for (int64_t i = 0; i < rows_ * row_size_; ++i) result[i] = get(at(i));
    for (int64_t row = 0; row < rows_; ++row)
      for (int64_t c = row_size_; c < row_size_ + padding_; ++c)
        EXPECT_EQ(get(row * (row_size_ + padding_) + c), untouched) << "padding was written";
    return result;
  }

 private:
  static constexpr double untouched = 77.0;
  static int64_t count(const std::vector<int64_t>& extents) {
    int64_t product = 1;
    for (const int64_t extent : extents) product *= extent;
    return product;
  }
  int64_t at(int64_t i) const { return i / row_size_ * (row_size_ + padding_) + i % row_size_; }
  double get(int64_t i) const {
    if (type_ == DType::bfloat16) return half_[i];
    return type_ == DType::float32 ? single_[i] : memory_[i];
  }
  void set(int64_t i, double value) {
    memory_[i] = value;
    single_[i] = static_cast<float>(value);
    half_[i] = bfloat16(value);
  }

  DType type_;
  int64_t rows_;
  int64_t row_size_;
  int64_t padding_;
  std::vector<double> memory_;
  std::vector<float> single_;
  std::vector<bfloat16> half_;
  Tensor tensor_;
};

inline double largest(const Array& values) {
  double result = 0;
  for (const double value : values) result = std::max(result, std::abs(value));
  return result;
}

/// Every element within `tolerance` times the size of the largest, or `size` where that is larger.
inline void expect_close(const Array& is, const Array& should, double tolerance,
                         const std::string& what, double size = 0) {
  ASSERT_EQ(is.size(), should.size()) << what;
  const double bound = tolerance * std::max(size, largest(should));
  for (size_t i = 0; i < is.size(); ++i)
    ASSERT_NEAR(is[i], should[i], bound) << what << ", element " << i;
}

/// Every element of `is` within a rounding to bfloat16 of `should`, and `tolerance` times the size
/// of the largest for what was done before it was rounded.
inline void expect_rounded(const Array& is, const Array& should, double tolerance,
                           const std::string& what) {
  ASSERT_EQ(is.size(), should.size()) << what;
  const double bound = tolerance * largest(should);
  for (size_t i = 0; i < is.size(); ++i) {
    ASSERT_EQ(is[i], bfloat16(is[i])) << what;
    ASSERT_NEAR(is[i], should[i], half_rounding * std::abs(should[i]) + bound)
        << what << ", element " << i;
  }
}

inline void expect_same(const Arrays& a, const Arrays& b, const std::string& what) {
  EXPECT_EQ(a, b) << what;
}

/// An op as functions of arrays, so that one set of checks serves all.
struct Op {
  std::string name;
  /// Outputs from inputs.
  std::function<Arrays(DType, const Arrays&)> forward;
  /// Gradients of the inputs from inputs and gradients of the outputs.
  std::function<Arrays(DType, const Arrays&, const Arrays&)> backward;
  /// Slow, obvious, double: outputs from inputs.
  std::function<Arrays(const Arrays&)> reference;
  /// Multiples of the type's epsilon by which an element may be off, relative to the largest: the
  /// roundings along the longest path to an element, with sums over rows of the size tested.
  double roundings = 32;
  /// The first input whose gradient is a sum over rows, as are those after it: such a sum may
  /// cancel, and then keeps the roundings of its terms, which are of the size of the gradients of
  /// the outputs.
  size_t first_summed = 99;
};

inline double epsilon(DType type) { return type == DType::float32 ? 0x1p-23 : 0x1p-52; }

inline void check_values(const Op& op, const Arrays& inputs) {
  const Arrays should = op.reference(inputs);
  for (const DType type : {DType::float32, DType::float64}) {
    const Arrays is = op.forward(type, inputs);
    ASSERT_EQ(is.size(), should.size());
    for (size_t i = 0; i < is.size(); ++i)
      expect_close(is[i], should[i], op.roundings * epsilon(type),
                   op.name + ", output " + std::to_string(i) + ", " + name_of(type));
    expect_same(is, op.forward(type, inputs), op.name + " run twice");
  }
}

/// sum of douts * forward(inputs + step * direction in one input), in float64.
inline double loss_along(const Op& op, Arrays inputs, const Arrays& douts, size_t which,
                         const Array& direction, double step) {
  for (size_t i = 0; i < direction.size(); ++i) inputs[which][i] += step * direction[i];
  const Arrays outputs = op.forward(DType::float64, inputs);
  double loss = 0;
  for (size_t o = 0; o < outputs.size(); ++o)
    for (size_t i = 0; i < outputs[o].size(); ++i) loss += outputs[o][i] * douts[o][i];
  return loss;
}

/// Fourth-order central difference against the gradient's projection. `outputs` is the sum of the
/// sizes of what the loss adds up.
inline void check_along(const Op& op, const Arrays& inputs, const Arrays& douts, size_t which,
                        const Array& direction, const Array& gradient, double outputs) {
  constexpr double step = 1e-3;
  const auto loss = [&](double s) { return loss_along(op, inputs, douts, which, direction, s); };
  const double slope =
      (8 * (loss(step) - loss(-step)) - (loss(2 * step) - loss(-2 * step))) / (12 * step);
  double projected = 0, scale = 0;
  for (size_t i = 0; i < direction.size(); ++i) {
    projected += gradient[i] * direction[i];
    scale += std::abs(gradient[i] * direction[i]);
  }
  // cut-off step^4 = 1e-12 times a fifth derivative of some tens, and rounding of the loss / step
  const double tolerance = 1e-9 * (scale + std::abs(slope)) + 16 * 0x1p-52 * outputs / step + 1e-11;
  ASSERT_NEAR(projected, slope, tolerance) << op.name << ", gradient of input " << which;
}

/// The gradients of all inputs: float64 against differences of the kernel's own values (every
/// element of small inputs, random directions of all), float32 against float64, twice the same
/// bits.
inline void check_gradients(const Op& op, const Arrays& inputs) {
  Arrays douts = op.forward(DType::float64, inputs);
  unsigned seed = 1000;
  double outputs = 0;
  for (Array& dout : douts) {
    const Array output = std::move(dout);
    dout = random_array(static_cast<int64_t>(output.size()), ++seed);
    for (size_t i = 0; i < dout.size(); ++i) outputs += std::abs(output[i] * dout[i]);
  }
  const Arrays exact = op.backward(DType::float64, inputs, douts);
  ASSERT_EQ(exact.size(), inputs.size());
  for (size_t which = 0; which < inputs.size(); ++which) {
    const auto size = static_cast<int64_t>(inputs[which].size());
    ASSERT_EQ(static_cast<int64_t>(exact[which].size()), size);
    for (int64_t i = 0; size <= 64 && i < size; ++i) {
      Array direction(size, 0.0);
      direction[i] = 1;
      check_along(op, inputs, douts, which, direction, exact[which], outputs);
    }
    for (unsigned repeat = 0; repeat < (size > 10000 ? 1 : 2); ++repeat)
      check_along(op, inputs, douts, which, random_array(size, 2000 + repeat), exact[which],
                  outputs);
  }
  const Arrays single = op.backward(DType::float32, inputs, douts);
  for (size_t which = 0; which < inputs.size(); ++which)
    expect_close(single[which], exact[which], op.roundings * epsilon(DType::float32),
                 op.name + " backward, float32, input " + std::to_string(which),
                 which >= op.first_summed ? largest(douts[0]) : 0);
  for (const DType type : {DType::float32, DType::float64})
    expect_same(op.backward(type, inputs, douts), op.backward(type, inputs, douts),
                op.name + " backward run twice");
}

}  // namespace longstraw::test
