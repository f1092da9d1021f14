#include "gemm/blas.hpp"
#include "longstraw/kernels/blas_setup.hpp"

#include <cmath>
#include <vector>

namespace longstraw {
namespace {

struct Product {
  int64_t m, n, k;
  Transpose ta, tb;
  double beta;
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

const char* word(Transpose transpose) { return transpose == Transpose::yes ? "^T" : ""; }

template <class T>
[[noreturn]] void refuse(const Product& p, int64_t i, int64_t j, double is, double should) {
  const BlasFacts facts = blas_facts();
  throw Error(
      str("matrix products are wrong here: element ({}, {}) of A{} B{}, {} x {} x {} in {}, is {} "
          "and should be {} (BLAS: {}, kernels {}; old kernels have been wrong on new processors) "
          "- set OPENBLAS_CORETYPE to another kernel set, such as Haswell, or install another BLAS",
          i, j, word(p.ta), word(p.tb), p.m, p.n, p.k, name_of(dtype_of<T>), is, should,
          facts.config, facts.kernel));
}

template <class T>
void check_product(const Product& p) {
  const auto a = numbers<T>(p.m * p.k, 1), b = numbers<T>(p.k * p.n, 2);
  const auto before = numbers<T>(p.m * p.n, 3);
  auto c = before;
  // beta = 0 promises that what C holds does not matter
  if (p.beta == 0) std::fill(c.begin(), c.end(), std::numeric_limits<T>::quiet_NaN());
  const bool at = p.ta == Transpose::yes, bt = p.tb == Transpose::yes;
  blas::gemm<T>(p.ta, p.tb, p.m, p.n, p.k, T(1), a.data(), at ? p.m : p.k, b.data(), bt ? p.k : p.n,
                static_cast<T>(p.beta), c.data(), p.n);
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.n; ++j) {
      long double sum = p.beta * before[i * p.n + j], size = std::abs(sum);
      for (int64_t l = 0; l < p.k; ++l) {
        const long double term = static_cast<long double>(a[at ? l * p.m + i : i * p.k + l]) *
                                 b[bt ? j * p.k + l : l * p.n + j];
        sum += term;
        size += std::abs(term);
      }
      // the bound that any order of summation keeps: k + 1 roundings of half an epsilon of what is
      // summed; twice that leaves room for the second order
      const long double bound =
          static_cast<long double>(p.k + 1) * std::numeric_limits<T>::epsilon() * size;
      const T is = c[i * p.n + j];
      if (!(std::abs(is - sum) <= bound))
        refuse<T>(p, i, j, static_cast<double>(is), static_cast<double>(sum));
    }
}

}  // namespace

void check_blas() {
  // below and above the size from which OpenBLAS packs its operands, neither a multiple of a tile
  constexpr int64_t extents[][3] = {{67, 45, 33}, {130, 70, 129}};
  for (const auto& [m, n, k] : extents)
    for (const Transpose ta : {Transpose::no, Transpose::yes})
      for (const Transpose tb : {Transpose::no, Transpose::yes})
        for (const double beta : {0.0, 1.0}) {
          check_product<float>({m, n, k, ta, tb, beta});
          check_product<double>({m, n, k, ta, tb, beta});
        }
}

}  // namespace longstraw
