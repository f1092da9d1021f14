#include "longstraw/sim/reduced_gradient.hpp"

#include "longstraw/kernels/activation.hpp"
#include "longstraw/kernels/adamw.hpp"

#include <algorithm>
#include <cmath>

namespace longstraw {
namespace {

// Elements of every rank's part that are exchanged at a time: bounds scratch.
constexpr int64_t exchanged_at_once = int64_t{1} << 20;

}  // namespace

ReducedGradient::ReducedGradient(const Context& context)
    : size_(context.parameters.list().size()),
      mine_(context.grid.mine(size_)),
      values_(Field::zeros(context.ledger, "reduced gradient", context.type(), {mine_.size()})) {
  const Grid& grid = context.grid;
  const Tensor& all = context.parameters.gradients();
  const int ranks = grid.size();
  const int64_t element = size_of(all.type()), longest = grid.part(size_, 0).size();
  const int64_t once = std::min(exchanged_at_once, longest);
  const Field send = context.scratch({ranks * once}), receive = context.scratch({ranks * once});
  for (int64_t begin = 0; begin < longest; begin += once) {
    // Elements [begin, begin + once) of every rank's part.
    const auto piece = [&](int r) {
      const Range part = grid.part(size_, r);
      return Range{std::min(part.begin + begin, part.end),
                   std::min(part.begin + begin + once, part.end)};
    };
    const int64_t own = piece(grid.rank()).size();
    std::vector<int64_t> sent(ranks), received(ranks, own * element);
    int64_t at = 0;
    for (int r = 0; r < ranks; ++r) {
      const Range range = piece(r);
      copy(send.tensor().rows(at, at + range.size()), all.rows(range.begin, range.end));
      sent[r] = range.size() * element;
      at += range.size();
    }
    grid.all_to_all(receive.tensor().raw(), received, send.tensor().raw(), sent);
    for (int r = 0; r < ranks; ++r)
      add(context.stream, values_.tensor().rows(begin, begin + own),
          receive.tensor().rows(r * own, (r + 1) * own));
  }
}

double ReducedGradient::norm(const Grid& grid, Stream& stream) const {
  return std::sqrt(grid.sum(sum_of_squares(stream, values_)));
}

void ReducedGradient::gather(const Grid& grid, const Tensor& to, Range range) const {
  std::vector<int64_t> rows;
  Range own;
  for (int r = 0; r < grid.size(); ++r) {
    const Range part = grid.part(size_, r);
    const int64_t begin = std::clamp(range.begin, part.begin, part.end);
    const int64_t end = std::clamp(range.end, part.begin, part.end);
    rows.push_back(end - begin);
    if (r == grid.rank()) own = {begin - part.begin, end - part.begin};
  }
  grid.all_gather_rows(to, values_.tensor().rows(own.begin, own.end), rows);
}

}  // namespace longstraw
