// The order of ticks: a pure function of the last one, so that a run can stop and go on anywhere.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace longstraw {

/// What one iteration of the loop does.
enum class TickKind {
  capture_block,          ///< a block of the prompt, forward, nothing recorded
  score_block,            ///< a block of a response, values only
  advance_block,          ///< a block of a long response, forward, before it is replayed in reverse
  replay_block,           ///< a block of a response, forward with recording, and backward
  prompt_backward_block,  ///< a block of the prompt, recomputed with recording, and backward
  update                  ///< reduce the gradient, step the optimizer
};
const char* name_of(TickKind kind);

/// A tick: `group` counts within the step, `response` within the group, `block` within prompt or
/// response. The tick to be done next is all that there is of a cursor.
struct Tick {
  TickKind kind = TickKind::capture_block;
  int64_t step = 0;
  int64_t group = 0;
  int64_t response = 0;
  int64_t block = 0;
  bool operator==(const Tick&) const = default;
};

/// What a step must do for one group.
struct GroupPlan {
  struct Response {
    int64_t blocks = 1;   ///< at least one
    bool replays = true;  ///< false: it contributes nothing to the gradient and is scored only
  };
  int64_t prompt_blocks = 0;  ///< of the captured prompt; none for a prompt of one token
  std::vector<Response> responses;
  bool walks = false;  ///< whether the prompt's blocks are walked in reverse (exact gradient)
};
using StepPlan = std::vector<GroupPlan>;
/// Whether any response contributes to the step's gradient.
bool has_signal(const StepPlan& plan);

/// Whether `tick` is the first one of its group.
bool starts_group(const Tick& tick, const StepPlan& plan);
/// The first tick of step `step`. A plan has groups, and each has responses.
Tick first_tick(int64_t step, const StepPlan& plan);
/// The tick after `done`, which belongs to a step with this plan and is not its update. For each
/// group: capture the prompt; score or replay each response (a long one: forward through all blocks
/// but the last, then replay its blocks in reverse); walk the prompt in reverse; then the next
/// group; after the last one the update.
Tick next_tick(const Tick& done, const StepPlan& plan);
/// Whether `tick` is one of a step with this plan.
bool is_tick(const Tick& tick, const StepPlan& plan);
/// Calls `act` with every tick of step `step` but its update, in order.
void for_each_tick(int64_t step, const StepPlan& plan, const std::function<void(const Tick&)>& act);

}  // namespace longstraw
