#include "longstraw/sim/commands.hpp"

#include "longstraw/core/log.hpp"
#include "longstraw/io/file.hpp"
#include "longstraw/io/run_folder.hpp"
#include "longstraw/kernels/blas_setup.hpp"
#include "longstraw/sim/inspect.hpp"
#include "longstraw/sim/rollout_files.hpp"
#include "longstraw/sim/run.hpp"
#include "longstraw/sim/verify.hpp"

#include <filesystem>
#include <optional>

namespace longstraw {
namespace {

constexpr int64_t largest_deck = int64_t{1} << 20;

Deck read_deck(const Arguments& arguments, const Grid& grid) {
  std::optional<Deck> deck;
  std::string text;
  agree(grid, [&] {
    if (grid.rank() != 0) return;
    try {
      text = read_text(arguments.deck, largest_deck);
    } catch (const Error& error) {
      throw Error(str("deck: {} - check the path after -i", error.what()), 2);
    }
  });
  text = grid.broadcast(text, 0);
  agree(grid, [&] { deck.emplace(text, arguments.deck, arguments.overrides); });
  return std::move(*deck);
}

// Scoring needs no more of a deck than checkpoint, rollouts, temperature and sizes.
Settings for_scoring(Settings settings) {
  settings.objective = {.temperature = settings.objective.temperature, .norm_adv_by_std = false};
  settings.rollouts.epochs = settings.rollouts.groups_per_step = 1;
  settings.rollouts.shuffle = false;
  settings.steps = 0;
  settings.stepper.mode = GradientMode::frozen;
  settings.stepper.values_only = settings.stepper.keep_logprobs = true;
  return settings;
}

void check_output(const std::string& file, const Grid& grid) {
  namespace fs = std::filesystem;
  agree(grid, [&] {
    if (grid.rank() != 0) return;
    std::error_code failed;
    require(!fs::exists(file, failed),
            str("output {} exists - choose another with -o, or remove it", file), 2);
    try {
      const auto path = fs::absolute(file).lexically_normal();
      check_writable((path.has_filename() ? path : path.parent_path()).parent_path().string());
    } catch (const Error& error) {
      throw Error(str("output {}: {} - choose another with -o", file, error.what()), 2);
    }
  });
}

int score_command(const Arguments& arguments, const Problem& problem, const Grid& grid) {
  check_output(arguments.output, grid);
  log_header(problem, grid);
  if (arguments.check_only) {
    log(Level::info, "checked: this scoring can start; nothing was written");
    return 0;
  }
  const Scores scores = score(problem, grid);
  const char* key = arguments.score_as == ScoreAs::reference ? "ref_logprobs" : "logprobs";
  agree(grid, [&] {
    if (grid.rank() == 0) write_scored(problem.rollouts.file, arguments.output, key, scores);
  });
  log(Level::info, "wrote {}: {} of {} response(s)", arguments.output, key, scores.size());
  return 0;
}

int verify_command(const Arguments& arguments, const Problem& problem, const Grid& grid) {
  const VerifyOptions options{.directions = arguments.directions, .against = arguments.against};
  if (!arguments.output.empty()) check_output(arguments.output, grid);
  check_verify(problem, options, grid);
  log_header(problem, grid);
  log_verify_memory(problem, options, grid);
  if (arguments.check_only) {
    log(Level::info, "checked: this verification can start; nothing was written");
    return 0;
  }
  const VerifyReport report = verify(problem, options, grid);
  for (const auto& line : verify_lines(problem, report)) log(Level::info, line);
  if (!arguments.output.empty()) {
    agree(grid, [&] {
      if (grid.rank() == 0) write_text(arguments.output, verify_json(problem, report));
    });
    log(Level::info, "wrote {}", arguments.output);
  }
  if (report.held()) return 0;
  if (grid.rank() == 0) log(Level::error, "verify: a bound was exceeded, see above");
  return 1;
}

// A command on a deck's checkpoint and rollouts.
int deck_command(const Arguments& arguments, const Grid& grid) {
  // From now on, since opening and loading may take long.
  std::optional<Signals> signals;
  if (arguments.command == Command::run && !arguments.check_only) signals.emplace();
  Deck deck = read_deck(arguments, grid);
  std::optional<Settings> settings;
  agree(grid, [&] {
    settings.emplace(read_settings(deck));
    deck.check_all_read();
  });
  agree(grid, [] { check_blas(); });
  if (arguments.command == Command::score) settings = for_scoring(*settings);
  Problem problem = open_problem(*settings, grid);
  problem.deck = deck.completed();
  if (arguments.command == Command::score) return score_command(arguments, problem, grid);
  if (arguments.command == Command::verify) return verify_command(arguments, problem, grid);
  const RunOptions options{
      .folder = arguments.folder, .restart = arguments.restart, .time_limit = arguments.time_limit};
  if (arguments.check_only) {
    check_run(problem, options, grid);
    log_header(problem, grid);
    log(Level::info, "checked: this run can start; nothing was written");
    return 0;
  }
  return static_cast<int>(run(problem, options, *signals, grid));
}

}  // namespace

int perform(const Arguments& arguments, const Grid& grid) {
  switch (arguments.command) {
    case Command::help: log(Level::info, arguments.text); return 0;
    case Command::version: log(Level::info, version_lines()); return 0;
    case Command::inspect: inspect(arguments.target, arguments.check_content, grid); return 0;
    case Command::convert:
      check_output(arguments.output, grid);
      convert(arguments.target, arguments.output, grid);
      return 0;
    case Command::export_weights:
      check_output(arguments.exported.output, grid);
      export_weights(arguments.exported, grid);
      return 0;
    case Command::run:
    case Command::verify:
    case Command::score: return deck_command(arguments, grid);
  }
  return 0;
}

}  // namespace longstraw
