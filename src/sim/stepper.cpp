#include "longstraw/sim/stepper.hpp"

#include "longstraw/kernels/activation.hpp"
#include "longstraw/kernels/adamw.hpp"

#include <algorithm>
#include <cmath>

namespace longstraw {
namespace {

int64_t blocks_of(int64_t tokens, int64_t block_tokens) {
  return (tokens + block_tokens - 1) / block_tokens;
}

}  // namespace

int64_t captured(const Group& group) { return group.prompt.size() - 1; }

Range block_range(int64_t index, int64_t tokens, int64_t block_tokens) {
  return {index * block_tokens, std::min((index + 1) * block_tokens, tokens)};
}

const char* name_of(GradientMode mode) { return mode == GradientMode::exact ? "exact" : "frozen"; }

int64_t prompt_checkpoints_by_size(const ModelConfig& c, int64_t block_tokens) {
  constexpr int64_t most = 16;
  const int64_t full = std::count(c.layers.begin(), c.layers.end(), LayerKind::full_attention);
  const int64_t linear = std::ssize(c.layers) - full;
  const int64_t states = linear * (c.linear_value_heads * c.linear_key_dim * c.linear_value_dim +
                                   (c.conv_taps - 1) * c.conv_channels());
  const int64_t block_pages = full * 2 * c.kv_heads * c.head_dim * block_tokens;
  if (block_pages * most < states) return most;
  return std::max<int64_t>(1, (states + block_pages - 1) / std::max<int64_t>(block_pages, 1));
}

Stepper::Stepper(const Context& context, const Model& model, const ObjectiveSettings& objective,
                 const StepperSettings& settings)
    : context_(context),
      model_(model),
      objective_(objective),
      settings_(settings),
      shapes_(model.decoder.state_shapes(context.grid)),
      metrics_(objective) {
  if (settings_.prompt_checkpoint_every == 0)
    settings_.prompt_checkpoint_every =
        prompt_checkpoints_by_size(model.config, settings_.block_tokens);
}

// ---- what a step is made of

bool Stepper::contributes(const longstraw::Response& response, double advantage) const {
  return !settings_.values_only && counted_tokens(response, objective_) > 0 &&
         (advantage != 0 || objective_.kl_loss_coef != 0);
}

bool Stepper::walks(const Group& group) const {
  if (settings_.mode == GradientMode::frozen) return false;
  const auto advantages = group_advantages(group, objective_);
  for (size_t i = 0; i < advantages.size(); ++i)
    if (contributes(group.responses[i], advantages[i])) return true;
  return false;
}

StepPlan Stepper::plan(std::span<const Group* const> groups) const {
  StepPlan plan;
  for (const Group* group : groups) {
    GroupPlan& part = plan.emplace_back();
    part.prompt_blocks = blocks_of(captured(*group), settings_.block_tokens);
    const auto advantages = group_advantages(*group, objective_);
    for (size_t i = 0; i < group->responses.size(); ++i) {
      const auto tokens = static_cast<int64_t>(group->responses[i].ids.size());
      const bool replays = contributes(group->responses[i], advantages[i]);
      part.responses.push_back({blocks_of(tokens, settings_.block_tokens), replays});
    }
    part.walks = walks(*group);
  }
  return plan;
}

void Stepper::begin_step(std::span<const Group* const> groups) {
  groups_.assign(groups.begin(), groups.end());
  const StepDenominators denominators = step_denominators(groups, objective_);
  metrics_ = StepMetrics(objective_);
  terms_.clear();
  for (const Group* group : groups) {
    const auto advantages = group_advantages(*group, objective_);
    auto& terms = terms_.emplace_back();
    for (size_t i = 0; i < advantages.size(); ++i) {
      const int64_t counted = counted_tokens(group->responses[i], objective_);
      // A response that is masked as a whole has no token to weigh.
      terms.push_back(
          {advantages[i], counted == 0 ? 0.0 : token_weight(counted, denominators, objective_)});
    }
    metrics_.add_group(*group);
  }
  for (const auto& [id, values] : logprobs_) first_logprobs_.try_emplace(id, values);
  first_nonfinite_ = std::numeric_limits<int64_t>::max();
  gradient_begun_ = false;
}

int64_t Stepper::tokens(const Tick& tick) const {
  if (tick.kind == TickKind::update) return 0;
  const bool prompt =
      tick.kind == TickKind::capture_block || tick.kind == TickKind::prompt_backward_block;
  const int64_t all = prompt ? captured(group(tick)) : std::ssize(response(tick).ids);
  return block_range(tick.block, all, settings_.block_tokens).size();
}

Block Stepper::prompt_block(const Group& group, int64_t index) const {
  const Range range = block_range(index, captured(group), settings_.block_tokens);
  return make_block(context_.grid, range,
                    [&](Range positions) { return group.prompt.ids(positions); });
}

Block Stepper::branch_block(const Tick& tick, std::vector<int32_t>& targets) const {
  const auto& ids = response(tick).ids;
  const Range range = block_range(tick.block, std::ssize(ids), settings_.block_tokens);
  const int64_t start = captured(group(tick));
  const auto inputs = [&](Range positions) {
    std::vector<int32_t> slice;
    for (int64_t i = positions.begin - start; i < positions.end - start; ++i)
      slice.push_back(i == 0 ? group(tick).prompt.last() : ids[i - 1]);
    return slice;
  };
  Block block = make_block(context_.grid, {start + range.begin, start + range.end}, inputs);
  targets.assign(ids.begin() + (block.mine.begin - start), ids.begin() + (block.mine.end - start));
  return block;
}

int64_t Stepper::response_blocks(const Tick& tick) const {
  return blocks_of(std::ssize(response(tick).ids), settings_.block_tokens);
}

int64_t Stepper::local_tokens(Range positions) const {
  int64_t tokens = 0;
  for (int64_t begin = 0; begin < positions.size(); begin += settings_.block_tokens)
    tokens += context_.grid.mine(std::min(settings_.block_tokens, positions.size() - begin)).size();
  return tokens;
}

void Stepper::perform(const Tick& tick) {
  switch (tick.kind) {
    case TickKind::capture_block: return capture_block(tick);
    case TickKind::score_block: return score_block(tick);
    case TickKind::advance_block: return advance_block(tick);
    case TickKind::replay_block: return replay_block(tick);
    case TickKind::prompt_backward_block: return prompt_backward_block(tick);
    case TickKind::update: LONGSTRAW_ASSERT(false);
  }
}

// ---- the prompt

void Stepper::begin_group() {
  gradient_.reset();
  boundary_gradient_.clear();
  prompt_starts_.clear();
  boundary_.clear();
  sequence_.reset();
  sequence_.emplace(context_, shapes_, settings_.page_tokens);
  checkpoint_every_ = settings_.prompt_checkpoint_every;
}

void Stepper::capture_block(const Tick& tick) {
  const Group& prompt = group(tick);
  if (tick.block == 0) {
    begin_group();
    sequence_->open(local_tokens({0, captured(prompt)}));
  }
  if (walks(prompt) && tick.block % checkpoint_every_ == 0)
    prompt_starts_[tick.block] = sequence_->carried(context_, "saved states");
  const Block block = prompt_block(prompt, tick.block);
  model_.decoder.forward({context_, block, *sequence_}, nullptr);
}

void Stepper::prompt_backward_block(const Tick& tick) {
  const Group& prompt = group(tick);
  const Block block = prompt_block(prompt, tick.block);
  if (block.positions.end == captured(prompt)) gradient_->set_carried(boundary_gradient_);
  // States between the kept ones are recomputed once, forward from the nearest.
  const auto kept = std::prev(prompt_starts_.upper_bound(tick.block));
  sequence_->restore(kept->second);
  for (int64_t b = kept->first; b < tick.block; ++b) {
    const Block earlier = prompt_block(prompt, b);
    model_.decoder.forward({context_, earlier, *sequence_}, nullptr);
    prompt_starts_[b + 1] = sequence_->carried(context_, "saved states");
  }
  replay(block, nullptr, {});
  prompt_starts_.erase(tick.block);
  gradient_->truncate(*sequence_, sequence_->rows_before(block.positions.begin));
}

// ---- the branches

void Stepper::begin_branch(const Tick& tick) {
  if (tick.response == 0 && captured(group(tick)) == 0) begin_group();
  if (tick.response == 0) boundary_ = sequence_->carried(context_, "boundary");
  const int64_t start = captured(group(tick));
  sequence_->open(local_tokens({start, start + std::ssize(response(tick).ids)}));
}

void Stepper::end_branch(const Tick& tick) {
  branch_starts_.clear();
  sequence_->truncate(captured(group(tick)));
  sequence_->restore(boundary_);
}

// What has arrived at the boundary is the branch's: `exact` adds it up over the group.
void Stepper::keep_boundary_gradient(const Tick& tick) {
  if (settings_.mode == GradientMode::frozen) {
    gradient_.reset();
    return;
  }
  gradient_->add_carried_to(boundary_gradient_, context_);
  gradient_->truncate(*sequence_, sequence_->rows_before(captured(group(tick))));
}

void Stepper::score_block(const Tick& tick) {
  if (tick.block == 0) begin_branch(tick);
  std::vector<int32_t> targets;
  const Block block = branch_block(tick, targets);
  const Field x = model_.decoder.forward({context_, block, *sequence_}, nullptr);
  take(tick, block, model_.head.score(context_, x, targets, objective_.temperature));
  if (tick.block + 1 == response_blocks(tick)) end_branch(tick);
}

void Stepper::advance_block(const Tick& tick) {
  if (tick.block == 0) begin_branch(tick);
  branch_starts_[tick.block] = sequence_->carried(context_, "saved states");
  std::vector<int32_t> targets;
  const Block block = branch_block(tick, targets);
  model_.decoder.forward({context_, block, *sequence_}, nullptr);
}

void Stepper::replay_block(const Tick& tick) {
  const int64_t blocks = response_blocks(tick);
  if (blocks == 1) begin_branch(tick);
  if (tick.block + 1 < blocks) {
    sequence_->restore(branch_starts_.at(tick.block));
    branch_starts_.erase(tick.block);
  }
  std::vector<int32_t> targets;
  const Block block = branch_block(tick, targets);
  replay(block, &tick, targets);
  if (tick.block > 0) return;
  keep_boundary_gradient(tick);
  end_branch(tick);
}

void Stepper::replay(const Block& block, const Tick* tick, std::span<const int32_t> targets) {
  gradient_begun_ = true;
  BlockRecord record;
  const Field x = model_.decoder.forward({context_, block, *sequence_}, &record);
  const bool last_of_branch =
      tick != nullptr &&
      block.positions.end == captured(group(*tick)) + std::ssize(response(*tick).ids);
  if (!gradient_) begin_gradient(tick);
  if (last_of_branch) {
    gradient_->extend(*sequence_);
    gradient_->clear_carried();
  }
  Field dx = Field::zeros(context_.ledger, "scratch", context_.type(),
                          {block.mine.size(), model_.config.hidden});
  TokenScores scores;
  if (tick != nullptr) scores = replay_head(*tick, block, dx, x, targets);
  const Field dembedded = model_.decoder.backward({context_, block, *sequence_, &*gradient_},
                                                  std::move(record), std::move(dx));
  if (tick == nullptr) return;
  take(*tick, block, scores);
  const bool finite = std::isfinite(sum_of_squares(context_.stream, dembedded)) &&
                      std::all_of(scores.logprobs.begin(), scores.logprobs.end(),
                                  [](double l) { return std::isfinite(l); });
  if (!finite) first_nonfinite_ = std::min(first_nonfinite_, response_index(*tick));
}

// Of all positions, or in `frozen` of the branch's.
void Stepper::begin_gradient(const Tick* tick) {
  const bool exact = settings_.mode == GradientMode::exact;
  const int64_t first = exact ? 0 : sequence_->rows_before(captured(group(*tick)));
  gradient_.emplace(context_, shapes_, *sequence_, first);
}

TokenScores Stepper::replay_head(const Tick& tick, const Block& block, const Tensor& dx,
                                 const Tensor& x, std::span<const int32_t> targets) {
  return model_.head.replay(context_, dx, x, targets, objective_.temperature,
                            [&](int64_t index, double logprob) {
                              const auto token = loss_of(tick, block.mine.begin + index, logprob);
                              return token ? token->loss.derivative * token->weight : 0.0;
                            });
}

// ---- values

std::optional<Stepper::WeightedLoss> Stepper::loss_of(const Tick& tick, int64_t position,
                                                      double logprob) const {
  const auto& r = response(tick);
  const int64_t token = position - captured(group(tick));
  if (!counts(r, token, objective_)) return std::nullopt;
  TokenValues values{.logprob = logprob,
                     .old_logprob = logprob,
                     .ref_logprob = r.ref_logprobs.empty() ? 0 : r.ref_logprobs[token],
                     .advantage = terms_[tick.group][tick.response].advantage};
  if (objective_.old_logprobs == OldLogprobs::given) {
    values.old_logprob = r.logprobs[token];
  } else if (const auto first = first_logprobs_.find(r.id); first != first_logprobs_.end()) {
    values.old_logprob = first->second[token];
  }
  Importance importance;
  if (objective_.old_logprobs == OldLogprobs::computed && !r.logprobs.empty())
    importance = truncated_importance(values.old_logprob, r.logprobs[token], objective_);
  values.importance = importance.factor;
  return WeightedLoss{.loss = token_loss(values, objective_),
                      .weight = terms_[tick.group][tick.response].weight,
                      .importance_capped = importance.capped};
}

void Stepper::take(const Tick& tick, const Block& block, const TokenScores& scores) {
  for (size_t i = 0; i < scores.logprobs.size(); ++i) {
    const auto token =
        loss_of(tick, block.mine.begin + static_cast<int64_t>(i), scores.logprobs[i]);
    if (token)
      metrics_.add_token(token->loss, token->weight, scores.entropies[i], token->importance_capped);
  }
  if (!settings_.keep_logprobs) return;
  std::vector<double> all(block.tokens(), 0.0);
  std::copy(scores.logprobs.begin(), scores.logprobs.end(),
            all.begin() + (block.mine.begin - block.positions.begin));
  context_.grid.sum(all);
  auto& kept = logprobs_[response(tick).id];
  kept.resize(response(tick).ids.size());
  std::copy(all.begin(), all.end(), kept.begin() + (block.positions.begin - captured(group(tick))));
}

int64_t Stepper::response_index(const Tick& tick) const {
  int64_t index = tick.response;
  for (int64_t g = 0; g < tick.group; ++g) index += std::ssize(groups_[g]->responses);
  return index;
}

std::string Stepper::nonfinite_response() const {
  int64_t index = -context_.grid.max(-first_nonfinite_);
  for (const Group* group : groups_) {
    if (index < std::ssize(group->responses)) return group->responses[index].id;
    index -= std::ssize(group->responses);
  }
  return {};
}

}  // namespace longstraw
