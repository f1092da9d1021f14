#include "longstraw/sim/schedule.hpp"

#include "longstraw/core/check.hpp"

#include <algorithm>

namespace longstraw {
namespace {

Tick begin_response(Tick at, const GroupPlan& group) {
  const auto& response = group.responses[at.response];
  at.block = 0;
  at.kind = !response.replays      ? TickKind::score_block
            : response.blocks == 1 ? TickKind::replay_block
                                   : TickKind::advance_block;
  return at;
}

Tick begin_group(Tick at, const GroupPlan& group) {
  at.response = at.block = 0;
  at.kind = TickKind::capture_block;
  return group.prompt_blocks > 0 ? at : begin_response(at, group);
}

Tick after_group(Tick at, const StepPlan& plan) {
  if (++at.group < static_cast<int64_t>(plan.size())) return begin_group(at, plan[at.group]);
  return {.kind = TickKind::update, .step = at.step};
}

Tick after_response(Tick at, const StepPlan& plan) {
  const GroupPlan& group = plan[at.group];
  if (++at.response < static_cast<int64_t>(group.responses.size()))
    return begin_response(at, group);
  if (!group.walks || group.prompt_blocks == 0) return after_group(at, plan);
  return {.kind = TickKind::prompt_backward_block,
          .step = at.step,
          .group = at.group,
          .block = group.prompt_blocks - 1};
}

}  // namespace

const char* name_of(TickKind kind) {
  switch (kind) {
    case TickKind::capture_block: return "capture_block";
    case TickKind::score_block: return "score_block";
    case TickKind::advance_block: return "advance_block";
    case TickKind::replay_block: return "replay_block";
    case TickKind::prompt_backward_block: return "prompt_backward_block";
    case TickKind::update: return "update";
  }
  return "";
}

bool has_signal(const StepPlan& plan) {
  return std::any_of(plan.begin(), plan.end(), [](const GroupPlan& group) {
    return std::any_of(group.responses.begin(), group.responses.end(),
                       [](const auto& response) { return response.replays; });
  });
}

bool starts_group(const Tick& tick, const StepPlan& plan) {
  return tick.kind != TickKind::update && tick == begin_group(tick, plan[tick.group]);
}

Tick first_tick(int64_t step, const StepPlan& plan) {
  return begin_group({.step = step}, plan.front());
}

Tick next_tick(const Tick& done, const StepPlan& plan) {
  LONGSTRAW_ASSERT(done.kind != TickKind::update);
  const GroupPlan& group = plan[done.group];
  Tick next = done;
  switch (done.kind) {
    case TickKind::capture_block:
      if (++next.block < group.prompt_blocks) return next;
      return begin_response(next, group);
    case TickKind::score_block:
      if (++next.block < group.responses[done.response].blocks) return next;
      return after_response(next, plan);
    case TickKind::advance_block:
      if (++next.block == group.responses[done.response].blocks - 1)
        next.kind = TickKind::replay_block;
      return next;
    case TickKind::replay_block:
      if (--next.block >= 0) return next;
      return after_response(next, plan);
    case TickKind::prompt_backward_block:
      if (--next.block >= 0) return next;
      return after_group(next, plan);
    case TickKind::update: break;
  }
  return next;
}

bool is_tick(const Tick& tick, const StepPlan& plan) {
  Tick at = first_tick(tick.step, plan);
  while (at != tick && at.kind != TickKind::update) at = next_tick(at, plan);
  return at == tick;
}

void for_each_tick(int64_t step, const StepPlan& plan,
                   const std::function<void(const Tick&)>& act) {
  for (Tick tick = first_tick(step, plan); tick.kind != TickKind::update;
       tick = next_tick(tick, plan))
    act(tick);
}

}  // namespace longstraw
