#include "gemm/blas.hpp"
#include "longstraw/kernels/blas_setup.hpp"

#include <cmath>
#include <vector>

namespace longstraw {
namespace {

struct Extents {
  int64_t m, n, k;
};

/// Numbers in [-1, 1) that fill the mantissa, by a linear congruence: a product that keeps fewer
/// digits than its type shows.
template <class T>
std::vector<T> numbers(int64_t count, uint64_t seed) {
  std::vector<T> values(count);
  for (T& value : values) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    value = static_cast<T>(static_cast<double>(seed >> 11) * 0x1p-52 - 1.0);
  }
  return values;
}

template <class T>
std::vector<T> transposed(const std::vector<T>& matrix, int64_t rows, int64_t columns) {
  std::vector<T> result(matrix.size());
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) result[j * rows + i] = matrix[i * columns + j];
  return result;
}

/// A B by plain loops in double, and how far any right product in T may be from it.
struct Plain {
  std::vector<double> product;
  std::vector<double> bound;

  template <class T>
  Plain(const Extents& x, const std::vector<T>& a, const std::vector<T>& b)
      : product(x.m * x.n, 0.0), bound(x.m * x.n, 0.0) {
    for (int64_t i = 0; i < x.m; ++i)
      for (int64_t l = 0; l < x.k; ++l)
        for (int64_t j = 0; j < x.n; ++j) {
          const double term = static_cast<double>(a[i * x.k + l]) * b[l * x.n + j];
          product[i * x.n + j] += term;
          bound[i * x.n + j] += std::abs(term);
        }
    // a sum of k products and what C held rounds at most k + 1 times, each time by half an epsilon
    // of the terms' sizes (C adds 1 to these), whatever the order; and these loops as often
    const double roundings = static_cast<double>(x.k + 1) * std::numeric_limits<T>::epsilon();
    for (double& value : bound) value = roundings * (value + 1);
  }
};

const char* word(Transpose transpose) { return transpose == Transpose::yes ? "^T" : ""; }

/// One product by the BLAS, onto `before` (beta = 1) or onto NaNs that it must not read (beta = 0).
template <class T>
void check_product(const Extents& x, Transpose ta, Transpose tb, const std::vector<T>& a,
                   const std::vector<T>& b, T beta, const Plain& plain) {
  const auto before = numbers<T>(x.m * x.n, 3);
  auto c = before;
  if (beta == 0) std::fill(c.begin(), c.end(), std::numeric_limits<T>::quiet_NaN());
  blas::gemm<T>(ta, tb, x.m, x.n, x.k, T(1), a.data(), ta == Transpose::yes ? x.m : x.k, b.data(),
                tb == Transpose::yes ? x.k : x.n, beta, c.data(), x.n);
  for (int64_t i = 0; i < x.m * x.n; ++i) {
    const double is = static_cast<double>(c[i]);
    const double should = plain.product[i] + static_cast<double>(beta * before[i]);
    if (std::abs(is - should) <= plain.bound[i]) continue;
    const BlasFacts facts = blas_facts();
    throw Error(str(
        "matrix products are wrong here: element ({}, {}) of A{} B{}, {} x {} x {} in {}, is "
        "{} and should be {} (BLAS: {}, kernels: {}; old kernels have been wrong on new "
        "processors) - set OPENBLAS_CORETYPE to another kernel set, such as Haswell, or install "
        "another BLAS",
        i / x.n, i % x.n, word(ta), word(tb), x.m, x.n, x.k, name_of(dtype_of<T>), is, should,
        facts.config, facts.kernel));
  }
}

template <class T>
void check_extents(const Extents& x) {
  const auto a = numbers<T>(x.m * x.k, 1), b = numbers<T>(x.k * x.n, 2);
  const auto a_transposed = transposed(a, x.m, x.k), b_transposed = transposed(b, x.k, x.n);
  const Plain plain(x, a, b);
  for (const Transpose ta : {Transpose::no, Transpose::yes})
    for (const Transpose tb : {Transpose::no, Transpose::yes})
      for (const T beta : {T(0), T(1)})
        check_product<T>(x, ta, tb, ta == Transpose::yes ? a_transposed : a,
                         tb == Transpose::yes ? b_transposed : b, beta, plain);
}

}  // namespace

void check_blas() {
  // below and above the size from which OpenBLAS packs its operands, neither a multiple of a tile
  for (const Extents& extents : {Extents{67, 45, 33}, Extents{130, 70, 129}}) {
    check_extents<float>(extents);
    check_extents<double>(extents);
  }
}

}  // namespace longstraw
