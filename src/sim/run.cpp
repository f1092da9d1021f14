#include "longstraw/sim/run.hpp"

#include "longstraw/core/log.hpp"
#include "longstraw/core/version.hpp"
#include "longstraw/io/file.hpp"
#include "longstraw/io/gradients.hpp"
#include "longstraw/io/history.hpp"
#include "longstraw/io/run_folder.hpp"
#include "longstraw/sim/report.hpp"
#include "longstraw/sim/weights.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace longstraw {
namespace {

std::string nonfinite_text(const StepReport& report) {
  const std::string& id = report.nonfinite_response;
  return str("the gradient is not finite, {}; weights and moments are as before the step",
             id.empty() ? "in the sum of all responses only" : "first seen at response " + id);
}

// All that a run holds while it goes on, and the loop over its ticks.
class Run {
 public:
  Run(const Problem& problem, const Grid& grid)
      : problem_(problem),
        grid_(grid),
        parameters_(ledger_, problem.settings.precision, problem.model.parameters),
        context_{grid, ledger_, stream_, parameters_},
        optimizer_(ledger_, grid, parameters_, problem.settings.optimizer),
        stepper_(context_, problem.model, problem.settings.objective, problem.settings.stepper),
        steps_(steps_of(problem.settings, std::ssize(problem.rollouts.groups))),
        progress_(work(), on_terminal() && grid.rank() == 0) {
    load_weights(problem.checkpoint, parameters_, grid);
  }

  RunResult run(const RunFolder& folder);
  Scores score();

 private:
  int64_t steps() const { return std::ssize(steps_); }
  std::vector<const Group*> groups_of(int64_t step) const;
  double work() const;
  void begin_step(int64_t step);
  void perform(const Tick& tick);
  void update(int64_t step);
  void finish_step(const RunFolder& folder, History& history);
  void write_gradient(const RunFolder& folder, int64_t step);
  void write_origin(const RunFolder& folder);

  const Problem& problem_;
  const Grid& grid_;
  Ledger ledger_;
  Stream stream_;
  Parameters parameters_;
  Context context_;
  Optimizer optimizer_;
  ReducedGradient gradient_;  // from a step's update until it is reported
  Stepper stepper_;
  std::vector<std::vector<int64_t>> steps_;
  StepPlan plan_;
  StepReport report_;
  Progress progress_;
};

std::vector<const Group*> Run::groups_of(int64_t step) const {
  std::vector<const Group*> groups;
  for (int64_t index : steps_[step]) groups.push_back(&problem_.rollouts.groups[index]);
  return groups;
}

double Run::work() const {
  double work = 0;
  for (int64_t step = 0; step < steps(); ++step) {
    const auto groups = groups_of(step);
    work += Progress::work(groups, stepper_.plan(groups));
  }
  return work;
}

void Run::begin_step(int64_t step) {
  const auto groups = groups_of(step);
  plan_ = stepper_.plan(groups);
  stepper_.begin_step(groups);
  report_ = {.step = step, .mode = problem_.settings.stepper.mode};
}

void Run::perform(const Tick& tick) {
  const Timer timer;
  if (tick.kind == TickKind::update)
    update(tick.step);
  else
    stepper_.perform(tick);
  report_.seconds.of(tick.kind) += timer.seconds();
  progress_.done(tick.kind, stepper_.tokens(tick), str("step {}/{}", tick.step + 1, steps()));
}

void Run::update(int64_t step) {
  report_.summary = stepper_.summary();
  report_.lr = learning_rate(problem_.settings.optimizer, step, steps());
  const bool signal = has_signal(plan_);
  if (signal) {
    gradient_ = ReducedGradient(context_);
    report_.grad_norm = gradient_.norm(grid_, stream_);
  }
  if (!signal) {
    report_.outcome = StepOutcome::skipped_no_signal;
  } else if (!std::isfinite(report_.grad_norm) || !std::isfinite(report_.summary.loss)) {
    report_.nonfinite_response = stepper_.nonfinite_response();
    report_.outcome = problem_.settings.optimizer.on_nonfinite == OnNonfinite::skip
                          ? StepOutcome::skipped_nonfinite
                          : StepOutcome::stopped_nonfinite;
  } else {
    optimizer_.update(stream_, parameters_, gradient_, report_.grad_norm, report_.lr);
  }
  clear(parameters_.gradients());
}

void Run::finish_step(const RunFolder& folder, History& history) {
  if (problem_.settings.write_gradients && gradient_.held()) write_gradient(folder, report_.step);
  gradient_ = ReducedGradient();
  report_.bytes_peak = peak_bytes(ledger_, grid_);
  history.append(history_line(report_));
  progress_.clear();
  log(Level::info, step_line(report_, steps()));
  if (report_.outcome == StepOutcome::skipped_no_signal)
    log(Level::warning,
        "step {}: no response has a gradient (rewards are equal within each group, or all tokens "
        "masked) - the step was skipped",
        report_.step + 1);
  if (report_.outcome == StepOutcome::skipped_nonfinite)
    log(Level::warning, "step {}: {} - the step was skipped", report_.step + 1,
        nonfinite_text(report_));
  if (report_.outcome == StepOutcome::stopped_nonfinite && grid_.rank() == 0)
    log(Level::error,
        "step {}: {} - look at that response and at the weights, or go on without such steps by "
        "optimizer.on_nonfinite = skip",
        report_.step + 1, nonfinite_text(report_));
}

void Run::write_gradient(const RunFolder& folder, int64_t step) {
  std::vector<NamedShape> shapes;
  std::map<std::string, int64_t> offsets;
  for (const Parameter& p : parameters_.list().all()) {
    shapes.push_back({p.name, p.shape});
    offsets[p.name] = p.offset;
  }
  write_gradients({.path = folder.gradients(step),
                   .mode = name_of(problem_.settings.stepper.mode),
                   .step = step},
                  shapes, grid_, ledger_, problem_.settings.precision,
                  [&](const std::string& name, Range elements, const Tensor& values) {
                    const int64_t at = offsets.at(name);
                    gradient_.gather(grid_, values, {at + elements.begin, at + elements.end});
                    return true;
                  });
}

// How the weights came about, beside them.
void Run::write_origin(const RunFolder& folder) {
  const nlohmann::ordered_json origin = {{"program", str("LongStraw {}", version_text)},
                                         {"checkpoint", problem_.checkpoint.folder()},
                                         {"rollouts", problem_.rollouts.file},
                                         {"gradient_mode", name_of(problem_.settings.stepper.mode)},
                                         {"precision", name_of(problem_.settings.precision)},
                                         {"updates", optimizer_.updates()}};
  agree(grid_, [&] {
    if (grid_.rank() == 0) write_text(folder.weights() + "/longstraw.json", origin.dump(1) + "\n");
  });
}

RunResult Run::run(const RunFolder& folder) {
  History history(folder.history(), grid_);
  for (int64_t step = 0; step < steps(); ++step) {
    begin_step(step);
    for (Tick tick = first_tick(step, plan_);; tick = next_tick(tick, plan_)) {
      perform(tick);
      if (tick.kind == TickKind::update) break;
    }
    finish_step(folder, history);
    if (report_.outcome == StepOutcome::stopped_nonfinite) break;
  }
  save_weights(folder.weights(), problem_.checkpoint, problem_.model, parameters_, grid_, ledger_);
  write_origin(folder);
  return report_.outcome == StepOutcome::stopped_nonfinite ? RunResult::failed
                                                           : RunResult::finished;
}

Scores Run::score() {
  for (int64_t step = 0; step < steps(); ++step) {
    begin_step(step);
    for_each_tick(step, plan_, [&](const Tick& tick) { perform(tick); });
  }
  progress_.clear();
  const Scores& scores = stepper_.logprobs();
  for (const auto& [id, values] : scores)
    if (!std::all_of(values.begin(), values.end(), [](double x) { return std::isfinite(x); }))
      throw Error(
          str("response {}: its log-probabilities are not finite, nothing was written - look "
              "at the weights of {}",
              id, problem_.checkpoint.folder()),
          1, true);
  return scores;
}

}  // namespace

RunResult run(const Problem& problem, const std::string& folder, const std::string& completed_deck,
              const Grid& grid) {
  const RunFolder files(folder, completed_deck, grid);
  if (grid.rank() == 0) log_to_file(files.log());
  log_header(problem, grid);
  const RunResult result = Run(problem, grid).run(files);
  log(Level::info, "wrote {} (weights), history.jsonl, deck.ini and log in {}", files.weights(),
      files.path());
  return result;
}

Scores score(const Problem& problem, const Grid& grid) { return Run(problem, grid).score(); }

}  // namespace longstraw
