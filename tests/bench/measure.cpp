#include "bench/measure.hpp"

#include "longstraw/core/log.hpp"
#include "longstraw/core/timer.hpp"
#include "longstraw/kernels/gemm.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace longstraw::bench {
namespace {

double counted(const Stream& stream) {
  double sum = 0;
  for (const auto& [label, operations] : stream.operations()) sum += operations;
  return sum;
}

}  // namespace

double sgemm_rate(const Grid& grid, Ledger& ledger, Stream& stream) {
  constexpr int64_t n = 1024;
  const Field a = Field::zeros(ledger, "bench", DType::float32, {n, n});
  const Field b = Field::zeros(ledger, "bench", DType::float32, {n, n});
  const Field c(ledger, "bench", DType::float32, {n, n});
  std::iota(a.tensor().data<float>(), a.tensor().data<float>() + n, 1.0f);
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 8; ++i) {
    grid.barrier();
    const Timer timer;
    gemm(stream, c, a, Transpose::no, b, Transpose::no);
    best = std::min(best, timer.seconds());
  }
  return 2.0 * n * n * n / best * 1e-9;
}

Measurement measure(const Grid& grid, Ledger& ledger, Stream& stream, int times,
                    const std::function<void()>& act) {
  const double before = sgemm_rate(grid, ledger, stream);
  Measurement best{.seconds = std::numeric_limits<double>::infinity()};
  for (int i = 0; i < times; ++i) {
    grid.barrier();
    stream.reset();
    const Timer timer;
    act();
    const double seconds = grid.max(timer.seconds());
    if (seconds < best.seconds)
      best = {.seconds = seconds, .operations = grid.sum(counted(stream))};
  }
  const double rate = 0.5 * (before + sgemm_rate(grid, ledger, stream));
  best.share = best.operations * 1e-9 / best.seconds / grid.sum(rate);
  return best;
}

void print_heading(const std::string& what) {
  log(Level::info, "\n{:<44}{:>10}{:>12}{:>12}{:>10}", what, "seconds", "Gop", "Gop/s", "of sgemm");
}

void print_line(const std::string& name, const Measurement& m) {
  log(Level::info, "{:<44}{:>10.4f}{:>12.3f}{:>12.1f}{:>9.1f}%", name, m.seconds,
      m.operations * 1e-9, m.operations * 1e-9 / m.seconds, 100 * m.share);
}

}  // namespace longstraw::bench
