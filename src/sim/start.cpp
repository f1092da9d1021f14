#include "longstraw/sim/start.hpp"

#include "longstraw/core/json_check.hpp"
#include "longstraw/io/file.hpp"

#include <nlohmann/json.hpp>

#include <filesystem>

namespace longstraw {
namespace {

namespace fs = std::filesystem;

// Steps after which a run wrote the weights that are there; -1: there are none.
int64_t finished_steps(const std::string& folder, const Grid& grid) {
  int64_t steps = -1;
  agree(grid, [&] {
    const std::string path = folder + "/weights/" + origin_file;
    std::error_code failed;
    if (grid.rank() != 0 || !fs::exists(path, failed)) return;
    const auto origin = parse_json<nlohmann::json>(read_text(path, largest_json), path);
    if (origin.contains("steps") && is_count(origin["steps"])) steps = origin["steps"];
  });
  return grid.max(steps);
}

// What is still to be written that is large; an earlier life has written some of the gradients.
int64_t output_bytes(const Problem& problem, const std::string& folder) {
  const Settings& s = problem.settings;
  int64_t weights = 0;
  for (const auto& [name, tensor] : problem.checkpoint.tensors()) weights += tensor.bytes;
  if (!s.write_gradients) return weights;
  auto steps = std::ssize(steps_of(s, std::ssize(problem.rollouts.groups)));
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(folder, failed))
    steps -= entry.path().filename().string().starts_with("gradient-");
  return weights +
         std::max<int64_t>(steps, 0) * problem.model.parameters.size() * size_of(s.precision);
}

// It is another run's end where the deck has another meaning.
Notes notes_of_finished(const Problem& problem, const RunOptions& options, const Grid& grid) {
  const std::string path = options.folder + "/deck.ini";
  std::string before = problem.deck;
  agree(grid, [&] {
    std::error_code failed;
    if (grid.rank() == 0 && fs::exists(path, failed)) before = read_text(path, largest_json);
  });
  Notes notes =
      check_deck(grid.broadcast(before, 0), problem.deck, path, true, options.restart.force);
  notes.push_back(
      {Level::info, str("finished already: its weights are in {}/weights", options.folder)});
  return notes;
}

// None: the run starts anew. A bad latest dump does not hide the others.
std::unique_ptr<DumpReader> open_dump(const RestartRequest& request, const DumpFolder& folder,
                                      const Grid& grid, Notes& notes) {
  std::optional<std::string> path;
  try {
    path = find_dump(request, folder, grid, notes);
    return path ? std::make_unique<DumpReader>(*path, grid) : nullptr;
  } catch (const Error& error) {
    auto others = folder.dumps();
    if (path) std::erase(others, *path);
    if (request.from == Restart::file || others.empty()) throw;
    throw Error(str("{} - another can be named by -r: {}", error.what(), fmt::join(others, ", ")),
                error.status(), error.everywhere());
  }
}

}  // namespace

RunFolder::Earlier earlier(const RunOptions& options) {
  const RestartRequest& r = options.restart;
  std::error_code failed;
  const bool own =
      r.from == Restart::latest || r.from == Restart::automatic ||
      (r.from == Restart::file && fs::equivalent(fs::absolute(r.file).parent_path(),
                                                 fs::path(options.folder) / "dumps", failed));
  return own ? RunFolder::Earlier::allowed : RunFolder::Earlier::refused;
}

Start start_of(const Problem& problem, const RunOptions& options, const Grid& grid) {
  const Restart from = options.restart.from;
  const auto steps = std::ssize(steps_of(problem.settings, std::ssize(problem.rollouts.groups)));
  if ((from == Restart::automatic || from == Restart::latest) &&
      finished_steps(options.folder, grid) >= steps)
    return {.finished = true, .notes = notes_of_finished(problem, options, grid)};
  RunFolder::check(options.folder, earlier(options), grid);
  RunFolder::check_room(options.folder, output_bytes(problem, options.folder), grid);
  Start start;
  const DumpFolder dumps(options.folder + "/dumps", grid);
  start.dump = open_dump(options.restart, dumps, grid, start.notes);
  if (!start.dump) return start;
  start.identity = identity_of(problem, grid);
  const std::string& path = start.dump->file().path();
  RunIdentity dumped;
  Cursor cursor;
  dumped.fields(*start.dump);
  cursor.fields(*start.dump);
  if (cursor.next.step > steps)
    throw Error(str("cannot go on from {}: it is after step {}, and this run has {} - raise "
                    "run.steps, or take an earlier one",
                    path, cursor.next.step, steps),
                2, true);
  for (Note& note : check_restart(dumped, *start.identity, path, cursor.between_steps != 0,
                                  options.restart.force))
    start.notes.push_back(std::move(note));
  return start;
}

}  // namespace longstraw
