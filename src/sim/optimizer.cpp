#include "longstraw/sim/optimizer.hpp"

#include "longstraw/kernels/adamw.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace longstraw {

OptimizerSettings read_optimizer(Deck& deck) {
  constexpr double most = std::numeric_limits<double>::max();
  OptimizerSettings s;
  // AdamW moves each weight by about lr.
  s.lr = deck.get_in("optimizer.lr", s.lr, 0.0, 10.0);
  s.beta1 = deck.get_in("optimizer.beta1", s.beta1, 0.0, std::nextafter(1.0, 0.0));
  s.beta2 = deck.get_in("optimizer.beta2", s.beta2, 0.0, std::nextafter(1.0, 0.0));
  // With 0, a parameter that never had a gradient, such as an unused embedding, becomes 0/0.
  s.eps = deck.get_in("optimizer.eps", s.eps, std::numeric_limits<double>::min(), most);
  s.weight_decay = deck.get_in("optimizer.weight_decay", s.weight_decay, 0.0, 1000.0);
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
    : grid_(grid),
      settings_(settings),
      size_(parameters.list().size()),
      mine_(grid.mine(size_)),
      m_(Field::zeros(ledger, "moments", parameters.weights().type(), {mine_.size()})),
      v_(Field::zeros(ledger, "moments", parameters.weights().type(), {mine_.size()})) {}

void Optimizer::fields(DumpFields& fields, const ParameterList& list, int64_t steps) {
  fields.number("optimizer/updates", updates_, {0, steps}, "updates of the weights so far");
  const auto moment = [&](const char* name, const char* meaning, const Tensor& values) {
    for (const Parameter& p : list.all())
      fields.placed({.path = str("optimizer/{}/{}", name, p.name),
                     .type = values.type(),
                     .extents = p.shape,
                     .meaning = meaning},
                    flat_pieces({p.offset, p.offset + p.size}, values, mine_.begin, mine_));
  };
  moment("first_moment", "AdamW: running mean of the gradient", m_);
  moment("second_moment", "AdamW: running mean of the squared gradient", v_);
}

void Optimizer::update(Stream& stream, const Parameters& parameters,
                       const ReducedGradient& gradient, double norm, double lr) {
  const Tensor mine = parameters.weights().rows(mine_.begin, mine_.end);
  const double scale =
      settings_.max_grad_norm > 0 ? std::min(1.0, settings_.max_grad_norm / (norm + 1e-6)) : 1.0;
  adamw(stream, mine, m_, v_, gradient.values(),
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

}  // namespace longstraw
