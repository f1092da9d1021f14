// What a step holds between two ticks, for the dump.
#include "longstraw/core/json_check.hpp"
#include "longstraw/sim/json_field.hpp"
#include "longstraw/sim/stepper.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace longstraw {

// What there is before a tick, which follows from the schedule: of a dump that says otherwise,
// nothing is taken.
struct Stepper::Held {
  bool gradient;           // of the step
  bool past_boundary;      // the state there
  bool state_gradient;     // of the pages
  bool boundary_gradient;  // of the state at the boundary
  int64_t prompt_blocks;   // the first of the prompt, whose starts are not dropped yet
  int64_t branch_starts;   // of the branch's first blocks
  int64_t end;             // position after the last token whose state is retained
};

Stepper::Held Stepper::held(const Tick& next) const {
  const StepPlan plan = this->plan(groups_);
  Held held{};
  const auto replays = [](const GroupPlan& of, int64_t responses) {
    return std::any_of(of.responses.begin(), of.responses.begin() + responses,
                       [](const GroupPlan::Response& response) { return response.replays; });
  };
  const bool updates = next.kind == TickKind::update;
  const auto earlier = plan.begin() + (updates ? std::ssize(plan) : next.group);
  held.gradient = std::any_of(plan.begin(), earlier, [&](const GroupPlan& of) {
    return replays(of, std::ssize(of.responses));
  });
  if (updates) return held;

  const GroupPlan& of = plan[next.group];
  const int64_t boundary = captured(group(next)), begin = next.block * settings_.block_tokens;
  const bool captures = next.kind == TickKind::capture_block;
  const bool walks = next.kind == TickKind::prompt_backward_block;
  held.prompt_blocks = captures ? next.block : walks ? next.block + 1 : of.prompt_blocks;
  held.end = captures ? begin : boundary;
  if (captures) return held;

  const int64_t blocks = of.responses[next.response].blocks;
  const bool within_replay = next.kind == TickKind::replay_block && next.block + 1 < blocks;
  const bool arrived = walks || replays(of, next.response);
  const bool exact = settings_.mode == GradientMode::exact;
  held.gradient |= arrived || within_replay;
  held.state_gradient = within_replay || (exact && arrived);
  held.boundary_gradient = exact && arrived;
  const bool begins = next.kind == TickKind::replay_block ? blocks == 1 : next.block == 0;
  held.past_boundary = walks || next.response > 0 || !begins;
  if (walks) return held;
  held.end = boundary + (within_replay ? std::ssize(response(next).ids) : begin);
  if (next.kind == TickKind::advance_block) held.branch_starts = next.block;
  if (next.kind == TickKind::replay_block)
    held.branch_starts = std::min(next.block + 1, blocks - 1);
  return held;
}

void Stepper::fields(DumpFields& fields, const Tick& next) {
  metrics_.fields(fields, context_.grid);
  int64_t nonfinite = -context_.grid.max(-first_nonfinite_);
  fields.number("step/first_nonfinite", nonfinite, {0, std::numeric_limits<int64_t>::max()},
                "number in the step of the first response whose replay was not finite; the largest "
                "integer: none");
  first_nonfinite_ = nonfinite;
  score_fields(fields);
  const Held held = this->held(next);
  int64_t begun = gradient_begun_;
  fields.number("step/gradient_begun", begun, exactly(held.gradient),
                "1: the step's gradient is in the dump; 0: it is zero");
  gradient_begun_ = begun != 0;
  if (gradient_begun_) context_.parameters.gradient_fields(fields, context_.grid);
  if (next.kind != TickKind::update && !starts_group(next, plan(groups_)))
    group_fields(fields, next, held);
}

namespace {

void scores_field(DumpFields& fields, const std::string& path, Scores& scores) {
  auto lengths = nlohmann::json::array();
  std::vector<double> values;
  for (const auto& [id, logprobs] : scores) {
    lengths.push_back({id, logprobs.size()});
    values.insert(values.end(), logprobs.begin(), logprobs.end());
  }
  fields.numbers(path, values, "log-probabilities of responses' tokens, one after the other");
  json_field(fields, path + "_responses", lengths,
             "JSON: [id of a response, number of its tokens] each, in the order of the values",
             [&](const nlohmann::json& read) {
               scores.clear();
               auto at = values.begin();
               require(read.is_array(), "it is no list");
               for (const auto& entry : read) {
                 const auto& tokens = entry.at(1);
                 require(is_count(tokens) && tokens.get<int64_t>() <= values.end() - at,
                         "{} values of {}, but {} are left", tokens.dump(), entry.at(0).dump(),
                         values.end() - at);
                 const auto end = at + tokens.get<int64_t>();
                 const auto id = entry.at(0).get<std::string>();
                 require(scores.try_emplace(id, at, end).second, "{} stands there twice", id);
                 at = end;
               }
               require(at == values.end(), "{} values are of no response", values.end() - at);
             });
}

}  // namespace

void Stepper::score_fields(DumpFields& fields) {
  scores_field(fields, "logprobs/latest", logprobs_);
  scores_field(fields, "logprobs/first", first_logprobs_);
}

void Stepper::check_scores(const Rollouts& rollouts) const {
  for (const Group& group : rollouts.groups)
    for (const auto& response : group.responses)
      for (const Scores* scores : {&logprobs_, &first_logprobs_})
        if (const auto found = scores->find(response.id);
            found != scores->end() && found->second.size() != response.ids.size())
          throw Error(str("it has {} log-probabilities of response {}, which has {} tokens",
                          found->second.size(), response.id, response.ids.size()),
                      1, true);
}

void Stepper::group_fields(DumpFields& fields, const Tick& next, const Held& held) {
  if (fields.restoring()) begin_group();
  fields.number("group/checkpoint_every", checkpoint_every_, {1},
                "blocks between saved states of the prompt");
  int64_t end = sequence_->end();
  fields.number("group/end", end, exactly(held.end),
                "position after the last token whose state is retained");
  if (fields.restoring()) resume_sequence(next, end);
  prompt_fields(fields, next, held);
  const int64_t boundary = captured(group(next));
  if (end > boundary) sequence_->paged_fields(fields, "branch/rows", {boundary, end}, {});
  sequence_->carried_fields(fields, "group/carried");

  int64_t past_boundary = !boundary_.empty();
  fields.number("group/past_boundary", past_boundary, exactly(held.past_boundary),
                "1: the state at the boundary is kept");
  if (past_boundary != 0) {
    if (fields.restoring()) boundary_ = carried_zeros(context_, "boundary", shapes_);
    carried_fields(fields, "group/boundary", shapes_, boundary_);
  }
  int64_t starts = std::ssize(branch_starts_);
  fields.number("branch/starts", starts, exactly(held.branch_starts),
                "blocks of the branch whose start is kept");
  for (int64_t b = 0; b < starts; ++b) {
    if (fields.restoring()) branch_starts_[b] = carried_zeros(context_, "saved states", shapes_);
    carried_fields(fields, str("branch/start_{}", b), shapes_, branch_starts_.at(b));
  }
  gradient_fields(fields, next, held);
}

void Stepper::resume_sequence(const Tick& next, int64_t end) {
  const int64_t boundary = captured(group(next));
  const auto run = [&](Range positions, int64_t held) {
    sequence_->open(local_tokens(positions));
    for (int64_t begin = positions.begin; begin < held; begin += settings_.block_tokens) {
      const Range block{begin, std::min(begin + settings_.block_tokens, positions.end)};
      const Range mine = context_.grid.mine(block.size());
      sequence_->resume(block, {block.begin + mine.begin, block.begin + mine.end});
    }
  };
  if (boundary > 0) run({0, boundary}, std::min(end, boundary));
  if (end > boundary) run({boundary, boundary + std::ssize(response(next).ids)}, end);
}

// What grows while the prompt is captured and is constant from then on.
void Stepper::prompt_fields(DumpFields& fields, const Tick& next, const Held& held) {
  const std::string life = str("prompt-{}-{}", next.step, next.group);
  const Range positions{0, std::min(sequence_->end(), captured(group(next)))};
  if (positions.size() > 0) sequence_->paged_fields(fields, "prompt/rows", positions, life);

  // The walk drops and recomputes some: those that capture kept count.
  int64_t starts = 0;
  while (prompt_starts_.contains(starts * checkpoint_every_)) ++starts;
  const int64_t kept_starts = walks(group(next)) && held.prompt_blocks > 0
                                  ? (held.prompt_blocks - 1) / checkpoint_every_ + 1
                                  : 0;
  fields.number("prompt/starts", starts, exactly(kept_starts),
                "states saved by capture, one every group/checkpoint_every blocks");
  std::vector<const CarriedStates*> moments;
  for (int64_t i = 0; i < starts; ++i) {
    auto& kept = prompt_starts_[i * checkpoint_every_];
    if (fields.restoring()) kept = carried_zeros(context_, "saved states", shapes_);
    moments.push_back(&kept);
  }
  carried_series_fields(fields, "prompt/starts_of_blocks", shapes_, moments, life);
}

void Stepper::gradient_fields(DumpFields& fields, const Tick& next, const Held& held) {
  int64_t kept = gradient_.has_value();
  fields.number("group/has_state_gradient", kept, exactly(held.state_gradient),
                "1: a gradient of the retained state is kept");
  if (kept != 0) {
    if (fields.restoring()) begin_gradient(&next);
    const bool exact = settings_.mode == GradientMode::exact;
    const int64_t boundary = captured(group(next));
    int64_t end = boundary;
    // The branch's gradient begins with the replay of its last block.
    if (next.kind == TickKind::replay_block && next.block + 1 < response_blocks(next))
      end = sequence_->end();
    if (next.kind == TickKind::prompt_backward_block)
      end = block_range(next.block, boundary, settings_.block_tokens).end;
    gradient_->fields(fields, "group/state_gradient", *sequence_, {exact ? 0 : boundary, end});
    if (fields.restoring()) gradient_->truncate(*sequence_, sequence_->rows_before(end));
  }
  int64_t reached = !boundary_gradient_.empty();
  fields.number("group/boundary_reached", reached, exactly(held.boundary_gradient),
                "1: a response's gradient has arrived at the boundary");
  if (reached == 0) return;
  if (fields.restoring())
    boundary_gradient_ = carried_zeros(context_, "boundary gradient", shapes_);
  carried_gradient_fields(fields, "group/boundary_gradient", shapes_, boundary_gradient_);
}

}  // namespace longstraw
