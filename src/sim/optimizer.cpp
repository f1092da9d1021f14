#include "longstraw/sim/optimizer.hpp"

#include "longstraw/kernels/activation.hpp"
#include "longstraw/kernels/adamw.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace longstraw {
namespace {

// Elements of every rank's part that are exchanged at a time: bounds scratch.
constexpr int64_t exchanged_at_once = int64_t{1} << 20;

}  // namespace

OptimizerSettings read_optimizer(Deck& deck) {
  constexpr double most = 1e300;
  OptimizerSettings s;
  s.lr = deck.get_in("optimizer.lr", s.lr, 0.0, most);
  s.beta1 = deck.get_in("optimizer.beta1", s.beta1, 0.0, std::nextafter(1.0, 0.0));
  s.beta2 = deck.get_in("optimizer.beta2", s.beta2, 0.0, std::nextafter(1.0, 0.0));
  s.eps = deck.get_in("optimizer.eps", s.eps, 0.0, most);
  s.weight_decay = deck.get_in("optimizer.weight_decay", s.weight_decay, 0.0, most);
  s.max_grad_norm = deck.get_in("optimizer.max_grad_norm", s.max_grad_norm, 0.0, most);
  const auto schedule =
      deck.one_of("optimizer.schedule", "constant", {"constant", "linear", "cosine"});
  s.schedule = schedule == "linear"   ? LearningRateSchedule::linear
               : schedule == "cosine" ? LearningRateSchedule::cosine
                                      : LearningRateSchedule::constant;
  s.warmup_steps =
      deck.get_in<int64_t>("optimizer.warmup_steps", s.warmup_steps, 0, int64_t{1} << 40);
  s.on_nonfinite = deck.one_of("optimizer.on_nonfinite", "stop", {"stop", "skip"}) == "skip"
                       ? OnNonfinite::skip
                       : OnNonfinite::stop;
  return s;
}

double learning_rate(const OptimizerSettings& s, int64_t step, int64_t steps) {
  if (step < s.warmup_steps)
    return s.lr * static_cast<double>(step + 1) / static_cast<double>(s.warmup_steps);
  const double done = static_cast<double>(step - s.warmup_steps) /
                      static_cast<double>(std::max<int64_t>(steps - s.warmup_steps, 1));
  switch (s.schedule) {
    case LearningRateSchedule::linear: return s.lr * std::max(0.0, 1 - done);
    case LearningRateSchedule::cosine:
      return s.lr * 0.5 * (1 + std::cos(std::numbers::pi * std::min(done, 1.0)));
    case LearningRateSchedule::constant: break;
  }
  return s.lr;
}

Optimizer::Optimizer(Ledger& ledger, const Grid& grid, const Parameters& parameters,
                     const OptimizerSettings& settings)
    : ledger_(ledger),
      grid_(grid),
      settings_(settings),
      size_(parameters.list().size()),
      mine_(grid.mine(size_)),
      m_(Field::zeros(ledger, "moments", parameters.weights().type(), {mine_.size()})),
      v_(Field::zeros(ledger, "moments", parameters.weights().type(), {mine_.size()})) {}

double Optimizer::reduce_gradient(Stream& stream, const Parameters& parameters) {
  const Tensor& all = parameters.gradients();
  const int ranks = grid_.size();
  const int64_t element = size_of(all.type()), longest = grid_.part(size_, 0).size();
  gradient_ = Field::zeros(ledger_, "reduced gradient", all.type(), {mine_.size()});
  const int64_t once = std::min(exchanged_at_once, longest);
  const Field send(ledger_, "scratch", all.type(), {ranks * once});
  const Field receive(ledger_, "scratch", all.type(), {ranks * once});
  for (int64_t begin = 0; begin < longest; begin += once) {
    // Elements [begin, begin + once) of every rank's part.
    const auto piece = [&](int r) {
      const Range part = grid_.part(size_, r);
      return Range{std::min(part.begin + begin, part.end),
                   std::min(part.begin + begin + once, part.end)};
    };
    std::vector<int64_t> sent(ranks), received(ranks, piece(grid_.rank()).size() * element);
    int64_t at = 0;
    for (int r = 0; r < ranks; ++r) {
      const Range range = piece(r);
      copy(send.tensor().rows(at, at + range.size()), all.rows(range.begin, range.end));
      sent[r] = range.size() * element;
      at += range.size();
    }
    grid_.all_to_all(receive.tensor().raw(), received, send.tensor().raw(), sent);
    const int64_t own = piece(grid_.rank()).size();
    for (int r = 0; r < ranks; ++r)
      add(stream, gradient_.tensor().rows(begin, begin + own),
          receive.tensor().rows(r * own, (r + 1) * own));
  }
  return std::sqrt(grid_.sum(sum_of_squares(stream, gradient_)));
}

void Optimizer::update(Stream& stream, const Parameters& parameters, double norm, double lr) {
  const Tensor mine = parameters.weights().rows(mine_.begin, mine_.end);
  const double scale =
      settings_.max_grad_norm > 0 ? std::min(1.0, settings_.max_grad_norm / (norm + 1e-6)) : 1.0;
  adamw(stream, mine, m_, v_, gradient_,
        {.lr = lr,
         .beta1 = settings_.beta1,
         .beta2 = settings_.beta2,
         .eps = settings_.eps,
         .weight_decay = settings_.weight_decay,
         .step = ++updates_,
         .grad_scale = scale});
  std::vector<int64_t> rows;
  for (int r = 0; r < grid_.size(); ++r) rows.push_back(grid_.part(size_, r).size());
  grid_.all_gather_rows(parameters.weights(), mine, rows);
}

void Optimizer::gather_gradient(const Tensor& to, Range range) const {
  std::vector<int64_t> rows;
  Range own;
  for (int r = 0; r < grid_.size(); ++r) {
    const Range part = grid_.part(size_, r);
    const int64_t begin = std::clamp(range.begin, part.begin, part.end);
    const int64_t end = std::clamp(range.end, part.begin, part.end);
    rows.push_back(end - begin);
    if (r == grid_.rank()) own = {begin - part.begin, end - part.begin};
  }
  grid_.all_gather_rows(to, gradient_.tensor().rows(own.begin, own.end), rows);
}

}  // namespace longstraw
