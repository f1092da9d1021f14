#include "longstraw/sim/run.hpp"

#include "longstraw/comm/watchdog.hpp"
#include "longstraw/core/log.hpp"
#include "longstraw/core/version.hpp"
#include "longstraw/io/file.hpp"
#include "longstraw/io/gradients.hpp"
#include "longstraw/io/history.hpp"
#include "longstraw/io/run_folder.hpp"
#include "longstraw/sim/clock.hpp"
#include "longstraw/sim/report.hpp"
#include "longstraw/sim/weights.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>

namespace longstraw {
namespace {

std::string nonfinite_text(const StepReport& report) {
  const std::string& id = report.nonfinite_response;
  return str("the gradient is not finite, {}; weights and moments are as before the step",
             id.empty() ? "in the sum of all responses only" : "first seen at response " + id);
}

// Of a rank's dump, before a large one was written and timed: bytes a second.
constexpr double guessed_dump_rate = 2e8;

// All that a run holds while it goes on, and the loop over its ticks.
class Run {
 public:
  /// At its first tick, with the checkpoint's weights, or where `dump` left it. `identity` is
  /// what its dumps are to tell.
  Run(const Problem& problem, const Grid& grid, RunIdentity identity, DumpReader* dump = nullptr);

  /// To the end, or until it must stop. `dumped`: the dumps hold where it is.
  RunResult run(const RunFolder& folder, DumpFolder& dumps, Clock& clock, bool dumped);
  Scores score();
  /// Where it is, for people.
  std::string place() const;
  bool finished() const { return next_.step >= steps(); }

 private:
  int64_t steps() const { return std::ssize(steps_); }
  std::vector<const Group*> groups_of(int64_t step) const;
  double work(int64_t from_step) const;
  double work_done() const;
  double work_of(const Tick& tick) const;
  double dump_seconds() const;
  void begin_step(int64_t step);
  void perform(const Tick& tick);
  void update(int64_t step);
  void finish_step(const RunFolder& folder, History& history);
  void advance();
  void go_to_step(int64_t step);
  void fields(DumpFields& fields);
  bool dump_is_due() const;
  bool write_dump(DumpFolder& dumps);
  RunResult stop(DumpFolder& dumps, const std::string& reason);
  void write_gradient(const RunFolder& folder, int64_t step);
  void write_weights(const RunFolder& folder);

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
  RunIdentity identity_;
  StepPlan plan_;
  Tick next_;  // the cursor
  int64_t ticks_ = 0;
  StepReport report_;
  std::string history_;  // lines of the steps before, on rank 0
  Progress progress_;
  Timer since_dump_;
  double longest_dump_ = 0;               // seconds
  double dump_rate_ = guessed_dump_rate;  // bytes a second, the highest
  int64_t dumped_ticks_ = -1;
};

Run::Run(const Problem& problem, const Grid& grid, RunIdentity identity, DumpReader* dump)
    : problem_(problem),
      grid_(grid),
      parameters_(ledger_, problem.settings.precision, problem.model.parameters),
      context_{grid, ledger_, stream_, parameters_},
      optimizer_(ledger_, grid, parameters_, problem.settings.optimizer),
      stepper_(context_, problem.model, problem.settings.objective, problem.settings.stepper),
      steps_(steps_of(problem.settings, std::ssize(problem.rollouts.groups))),
      identity_(std::move(identity)),
      progress_(work(0), on_terminal() && grid.rank() == 0) {
  grid.activity().enter("loading weights");
  if (dump == nullptr) {
    load_weights(problem.checkpoint, parameters_, grid);
    go_to_step(0);
    return;
  }
  try {
    fields(*dump);
    stepper_.check_scores(problem.rollouts);
  } catch (const Error& error) {
    throw Error(str("cannot go on from {}: {}", dump->file().path(), error.what()), error.status(),
                error.everywhere());
  }
  ledger_.raise_peaks(report_.bytes_peak);
  report_.restarts.push_back(std::filesystem::path(dump->file().path()).filename().string());
  progress_.done_before(work_done());
}

std::vector<const Group*> Run::groups_of(int64_t step) const {
  std::vector<const Group*> groups;
  for (int64_t index : steps_[step]) groups.push_back(&problem_.rollouts.groups[index]);
  return groups;
}

double Run::work(int64_t from_step) const {
  double work = 0;
  for (int64_t step = from_step; step < steps(); ++step) {
    const auto groups = groups_of(step);
    work += Progress::work(groups, stepper_.plan(groups));
  }
  return work;
}

double Run::work_done() const {
  double done = work(0) - work(next_.step);
  if (finished()) return done;
  for (Tick tick = first_tick(next_.step, plan_); tick != next_; tick = next_tick(tick, plan_))
    done += work_of(tick);
  return done;
}

double Run::work_of(const Tick& tick) const {
  return Progress::cost(tick.kind) * static_cast<double>(stepper_.tokens(tick));
}

std::string Run::place() const {
  if (finished()) return str("after the last of {} step(s)", steps());
  return str("step {}/{}, before {} of group {}, response {}, block {}", next_.step + 1, steps(),
             name_of(next_.kind), next_.group, next_.response, next_.block);
}

void Run::begin_step(int64_t step) {
  const auto groups = groups_of(step);
  plan_ = stepper_.plan(groups);
  stepper_.begin_step(groups);
  report_ = {.step = step, .mode = problem_.settings.stepper.mode};
}

void Run::perform(const Tick& tick) {
  const Timer timer;
  grid_.activity().enter(str("step {}/{}, {} of group {}, block {}", tick.step + 1, steps(),
                             name_of(tick.kind), tick.group, tick.block));
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
                  });
}

void Run::write_weights(const RunFolder& folder) {
  grid_.activity().enter("writing the weights");
  save_weights(folder.weights(), problem_.checkpoint, {problem_.model, parameters_}, grid_,
               ledger_);
  write_origin({.folder = folder.weights(),
                .checkpoint = problem_.checkpoint.folder(),
                .rollouts = problem_.rollouts.file,
                .gradient_mode = name_of(problem_.settings.stepper.mode),
                .precision = name_of(problem_.settings.precision),
                .steps = next_.step,
                .updates = optimizer_.updates()},
               grid_);
  log(Level::info, "wrote {} (weights), history.jsonl, deck.ini and log in {}", folder.weights(),
      folder.path());
}

void Run::advance() {
  ++ticks_;
  if (next_.kind != TickKind::update) {
    next_ = next_tick(next_, plan_);
    return;
  }
  go_to_step(next_.step + 1);
}

void Run::go_to_step(int64_t step) {
  next_ = {.step = step};
  if (finished()) return;
  begin_step(step);
  next_ = first_tick(step, plan_);
}

// Everything that a dump holds.
void Run::fields(DumpFields& fields) {
  // That of the dump has been held against this run's.
  RunIdentity identity = identity_;
  identity.fields(fields);
  const bool between = finished() || plan_.empty() || next_ == first_tick(next_.step, plan_);
  Cursor cursor{.next = next_, .ticks = ticks_, .between_steps = between, .at_end = finished()};
  cursor.fields(fields);
  next_ = cursor.next, ticks_ = cursor.ticks;
  fields.text("history", history_, "JSON lines: history.jsonl, of the steps before");
  const int64_t lines = std::count(history_.begin(), history_.end(), '\n');
  if (fields.restoring() && next_.step != lines)
    throw Error(str("cursor/step is {}, but its history has {} step(s)", next_.step, lines), 1,
                true);
  parameters_.weight_fields(fields, grid_);
  optimizer_.fields(fields, parameters_.list(), next_.step);
  if (cursor.at_end != 0 || finished()) {
    stepper_.score_fields(fields);
    if (fields.restoring()) go_to_step(next_.step);  // the deck may have more steps now, or fewer
    return;
  }
  if (fields.restoring()) {
    begin_step(next_.step);
    // Forced changes may have given the step another first tick.
    if (cursor.between_steps != 0) next_ = first_tick(next_.step, plan_);
    if (!is_tick(next_, plan_)) throw Error("its cursor is at no tick of the step", 1, true);
  }
  report_.bytes_peak = peak_bytes(ledger_, grid_);
  report_.fields(fields);
  stepper_.fields(fields, next_);
}

// The same answer on every rank: rank 0's clock.
bool Run::dump_is_due() const {
  const DumpSettings& d = problem_.settings.dump;
  if (d.every_ticks > 0 && ticks_ % d.every_ticks == 0) return true;
  if (d.every_seconds <= 0) return false;
  const bool now = grid_.rank() == 0 && since_dump_.seconds() >= d.every_seconds;
  return grid_.max(int64_t{now}) > 0;
}

// A dump that fails costs the run nothing but its place to go on from.
bool Run::write_dump(DumpFolder& dumps) {
  const Timer timer;
  bool written = true;
  grid_.activity().enter("writing a dump, " + place());
  try {
    const int64_t bytes = dumps.write(ticks_, problem_.settings.dump.keep,
                                      [&](DumpFields& fields) { this->fields(fields); });
    log(Level::info, "dump {} ({}, {}): {}", ticks_, bytes_text(static_cast<double>(bytes)),
        seconds_text(timer.seconds()), place());
    dumped_ticks_ = ticks_;
    longest_dump_ = std::max(longest_dump_, timer.seconds());
    dump_rate_ = std::max(dump_rate_, static_cast<double>(bytes) / grid_.size() / timer.seconds());
  } catch (const Error& error) {
    if (!error.everywhere()) throw;
    log(Level::warning, "no dump: {}", error.what());
    written = false;
  }
  since_dump_ = Timer();
  report_.seconds.dump += timer.seconds();
  return written;
}

// What the next dump may take: it may have to hold more than those before. At the end there are
// weights to write besides.
double Run::dump_seconds() const {
  const double seconds =
      std::max(longest_dump_, static_cast<double>(ledger_.total().current) / dump_rate_);
  const bool last = next_.kind == TickKind::update && next_.step + 1 == steps();
  return last ? 2 * seconds : seconds;
}

RunResult Run::stop(DumpFolder& dumps, const std::string& reason) {
  progress_.clear();
  const bool dumped =
      dumped_ticks_ == ticks_ ||
      (problem_.settings.dump.at_exit ? write_dump(dumps) : dumps.latest().has_value());
  if (dumped)
    log(Level::info, "stopped    {}; the same with -r auto goes on from {}/latest", reason,
        dumps.path());
  else if (grid_.rank() == 0)
    log(Level::error,
        "stopped ({}) without a dump of this moment - see dump.at_exit, or above why there is none",
        reason);
  return dumped ? RunResult::stopped : RunResult::failed;
}

RunResult Run::run(const RunFolder& folder, DumpFolder& dumps, Clock& clock, bool dumped) {
  History history(folder.history(), history_, grid_);
  if (!dumped && problem_.settings.dump.at_exit) write_dump(dumps);
  while (!finished()) {
    if (const auto reason = clock.verdict(work_of(next_), dump_seconds()))
      return stop(dumps, *reason);
    const Timer timer;
    perform(next_);
    if (next_.kind == TickKind::update) finish_step(folder, history);
    clock.did(work_of(next_), timer.seconds());
    if (report_.outcome == StepOutcome::stopped_nonfinite) break;
    advance();
    if (!finished() && dump_is_due()) write_dump(dumps);
  }
  if (finished() && problem_.settings.dump.at_exit) write_dump(dumps);
  write_weights(folder);
  return finished() ? RunResult::finished : RunResult::failed;
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

void say(const Notes& notes) {
  for (const Note& note : notes) log(note.level, note.text);
}

}  // namespace

void check_run(const Problem& problem, const RunOptions& options, const Grid& grid) {
  say(start_of(problem, options, grid).notes);
}

RunResult run(const Problem& problem, const RunOptions& options, const Signals& signals,
              const Grid& grid) {
  // Before anything is written: a restart that is refused leaves all as it is.
  Start start = start_of(problem, options, grid);
  if (start.finished) {
    say(start.notes);
    return RunResult::finished;
  }
  const RunFolder files(options.folder, earlier(options), grid);
  const Watchdog watchdog(grid, files.path(), problem.settings.watchdog_seconds);
  Clock clock(grid, signals, files.path(), options.time_limit);
  if (grid.rank() == 0) log_to_file(files.log());
  log_header(problem, grid);
  say(start.notes);
  DumpFolder dumps(files.dumps(), grid);
  if (!start.dump && options.restart.from == Restart::automatic)
    log(Level::info, "restart    no dump in {}: a new run", dumps.path());
  if (!start.identity) start.identity = identity_of(problem, grid);
  Run run(problem, grid, *start.identity, start.dump.get());
  files.begin(problem.deck, grid);
  bool dumped = true;  // or there is nothing yet
  if (start.dump) {
    dumped = dumps.go_on_from(*start.dump);  // it knows now what the files hold
    log(Level::info, "restart    from {}: {}", start.dump->file().path(), run.place());
  }
  start.dump.reset();
  return run.run(files, dumps, clock, dumped);
}

Scores score(const Problem& problem, const Grid& grid) { return Run(problem, grid, {}).score(); }

}  // namespace longstraw
