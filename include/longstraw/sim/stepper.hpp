// The verbs of the loop: what one tick does to the state of the group at hand. Which tick comes
// next is the schedule's business, what becomes of the gradient the optimizer's.
#pragma once

#include "longstraw/model/model.hpp"
#include "longstraw/policy/metrics.hpp"
#include "longstraw/sim/schedule.hpp"

#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace longstraw {

/// `frozen`: the captured prompt state is a constant. `exact`: as full-sequence training.
enum class GradientMode { frozen, exact };
const char* name_of(GradientMode mode);

struct StepperSettings {
  GradientMode mode = GradientMode::exact;
  int64_t block_tokens = 2048;
  int64_t page_tokens = 4096;
  int64_t prompt_checkpoint_every = 0;  ///< blocks between saved states of the prompt (exact); 0:
                                        ///< as `prompt_checkpoints_by_size` says
  bool values_only = false;             ///< score every response, replay none
  bool keep_logprobs = false;           ///< gather every response's log-probabilities on all ranks
};

/// As few blocks between the prompt's saved states as these then take no more than its pages,
/// but at most 16: the walk recomputes the states between, and holds those of one such stretch.
int64_t prompt_checkpoints_by_size(const ModelConfig& config, int64_t block_tokens);

/// Tokens of a prompt that are captured: all but the last, with which every branch starts.
int64_t captured(const Group& group);
/// Block `index` of `tokens` tokens.
Range block_range(int64_t index, int64_t tokens, int64_t block_tokens);

class Stepper {
 public:
  Stepper(const Context& context, const Model& model, const ObjectiveSettings& objective,
          const StepperSettings& settings);

  /// What a step over `groups` must do.
  StepPlan plan(std::span<const Group* const> groups) const;
  /// Starts a step: advantages, denominators and metrics of `groups`, which must outlive it.
  void begin_step(std::span<const Group* const> groups);

  /// Does a tick that is not the step's update: the verb that it names. Collective over the grid.
  void perform(const Tick& tick);

  /// The ticks, each on the block that it names. Collective over the grid.
  void capture_block(const Tick& tick);
  void score_block(const Tick& tick);
  void advance_block(const Tick& tick);
  void replay_block(const Tick& tick);
  void prompt_backward_block(const Tick& tick);

  /// Tokens of the tick's block; none for an update.
  int64_t tokens(const Tick& tick) const;
  /// Collective over the grid.
  StepSummary summary() const { return metrics_.summary(context_.grid); }
  /// Id of the first response whose replay gave a number that is not finite; empty: none.
  /// Collective over the grid.
  std::string nonfinite_response() const;
  /// Log-probabilities by response id, of all responses run so far (`keep_logprobs`). With
  /// `old_logprobs = computed`, a response that is replayed again takes them as the old ones.
  const Scores& logprobs() const { return logprobs_; }
  /// The retained state, for tests to look at.
  const SequenceState& sequence() const { return *sequence_; }

  /// Lists all that the step holds before the tick `next`, but for the weights. To be called after
  /// `begin_step`. Collective over the grid.
  void fields(DumpFields& fields, const Tick& next);
  /// Lists the log-probabilities that later steps take.
  void score_fields(DumpFields& fields);
  /// Refuses those that are not as many as the response they are of has tokens, the same on every
  /// rank.
  void check_scores(const Rollouts& rollouts) const;

 private:
  const Group& group(const Tick& tick) const { return *groups_[tick.group]; }
  const longstraw::Response& response(const Tick& tick) const {
    return group(tick).responses[tick.response];
  }
  bool contributes(const longstraw::Response& response, double advantage) const;
  Block prompt_block(const Group& group, int64_t index) const;
  /// The block of a response that `tick` names, its input tokens being the last of the prompt and
  /// all of the response but the last; and the tokens it predicts on this rank.
  Block branch_block(const Tick& tick, std::vector<int32_t>& targets) const;
  int64_t response_blocks(const Tick& tick) const;
  int64_t local_tokens(Range positions) const;

  struct Held;
  Held held(const Tick& next) const;
  void group_fields(DumpFields& fields, const Tick& next, const Held& held);
  void prompt_fields(DumpFields& fields, const Tick& next, const Held& held);
  void gradient_fields(DumpFields& fields, const Tick& next, const Held& held);
  /// Makes room for the tokens before position `end` of the tick's sequence.
  void resume_sequence(const Tick& next, int64_t end);

  bool walks(const Group& group) const;
  void begin_group();
  void begin_branch(const Tick& tick);
  void end_branch(const Tick& tick);
  void keep_boundary_gradient(const Tick& tick);
  /// Forward with recording and backward of one block: of a response with `tick`, whose tokens are
  /// in the loss, or of a prompt (null).
  void replay(const Block& block, const Tick* tick, std::span<const int32_t> targets);
  void begin_gradient(const Tick* tick);
  TokenScores replay_head(const Tick& tick, const Block& block, const Tensor& dx, const Tensor& x,
                          std::span<const int32_t> targets);

  struct WeightedLoss {
    TokenLoss loss;
    double weight;
    bool importance_capped;
  };
  /// Loss of the response's token at `position` of the sequence; nothing if it does not count.
  std::optional<WeightedLoss> loss_of(const Tick& tick, int64_t position, double logprob) const;
  void take(const Tick& tick, const Block& block, const TokenScores& scores);
  /// Number of the tick's response in the step.
  int64_t response_index(const Tick& tick) const;

  Context context_;
  const Model& model_;
  ObjectiveSettings objective_;
  StepperSettings settings_;
  std::vector<StateShape> shapes_;

  // of the step
  std::vector<const Group*> groups_;
  struct ResponseTerms {
    double advantage;
    double weight;  // of one counted token in the loss
  };
  std::vector<std::vector<ResponseTerms>> terms_;  // by group and response
  bool gradient_begun_ = false;                    // whether a rank may hold a part of it
  StepMetrics metrics_;
  int64_t first_nonfinite_ = std::numeric_limits<int64_t>::max();
  Scores logprobs_;
  Scores first_logprobs_;  // of a response's first use, in earlier steps

  // of the group
  std::optional<SequenceState> sequence_;
  int64_t checkpoint_every_ = 1;  // blocks between saved states of its prompt
  CarriedStates boundary_;
  std::map<int64_t, CarriedStates> prompt_starts_;  // by block
  std::map<int64_t, CarriedStates> branch_starts_;
  std::optional<StateGradient> gradient_;
  CarriedStates boundary_gradient_;
};

}  // namespace longstraw
