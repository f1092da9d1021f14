#include "longstraw/sim/restart.hpp"

#include "longstraw/io/checksum.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>

namespace longstraw {
namespace {

bool starts_with_one_of(const std::string& key,
                        std::initializer_list<std::string_view> beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](std::string_view beginning) { return key.starts_with(beginning); });
}

struct Change {
  std::string key, before, now;
};

std::vector<Change> changes(const std::string& before, const std::string& now) {
  const auto values = [](const std::string& deck) { return Deck(deck, "deck.ini").values(); };
  std::map<std::string, std::string> old;
  for (const auto& [key, value] : values(before)) old[key] = value;
  std::vector<Change> found;
  for (const auto& [key, value] : values(now)) {
    const auto was = old.find(key);
    if (was == old.end() || was->second != value)
      found.push_back({key, was == old.end() ? "not there" : was->second, value});
  }
  return found;
}

void refuse(const std::string& dump, const std::string& why) {
  throw Error(str("cannot go on from {}: {}", dump, why), 2, true);
}

// What was changed is taken when it is forced, between two steps.
Note forced(const std::string& dump, const std::string& what, bool between_steps, bool force) {
  if (!between_steps)
    refuse(dump, what +
                     ", and the dump lies within a step - change it back, start a new run, or take "
                     "a dump that was written between steps");
  if (!force) refuse(dump, what + " - change it back, start a new run, or take it by --force");
  return {Level::warning, str("restart: {} (taken by --force)", what)};
}

}  // namespace

MayChange may_change(const std::string& key) {
  if (starts_with_one_of(key, {"model.precision"})) return MayChange::no;
  // Where model and rollouts lie may change; what they hold is compared.
  if (starts_with_one_of(
          key, {"optimizer.", "dump.", "output.", "model.checkpoint", "rollouts.file", "run.steps",
                "run.watchdog_seconds", "parallel.page_tokens", "parallel.weights",
                "gradient.prompt_checkpoint_every"}))
    return MayChange::yes;
  return MayChange::forced;
}

std::optional<std::string> find_dump(const RestartRequest& request, const DumpFolder& folder,
                                     const Grid& grid, Notes& notes) {
  if (request.from == Restart::none) return std::nullopt;
  if (grid.rank() == 0)
    for (const auto& file : folder.unfinished())
      notes.push_back({Level::warning, str("{} was not finished and is passed over", file)});
  std::optional<std::string> found;
  if (request.from == Restart::file)
    found = std::filesystem::absolute(request.file).lexically_normal().string();
  else
    found = folder.latest();
  agree(grid, [&] {
    if (request.from == Restart::latest && !found)
      throw Error(
          str("-r latest: {} has no dump - start with -r auto, or without -r", folder.path()), 2);
    std::error_code failed;
    if (found && grid.rank() == 0 && !std::filesystem::exists(*found, failed))
      throw Error(str("-r {}: there is no dump {}",
                      request.from == Restart::file ? request.file : "latest", *found),
                  2);
  });
  return found;
}

void RunIdentity::fields(DumpFields& fields) {
  fields.text("deck", deck, "input deck with all defaults, as the run had it");
  fields.text("model/checkpoint", model, "folder that the run started from");
  fields.text("model/digest", model_digest,
              "of config.json, names, types, shapes and samples of the checkpoint's tensors");
  fields.text("rollouts/file", rollouts, "rollouts that the run takes");
  fields.text("rollouts/digest", rollouts_digest, "of the file's content");
  fields.number("run/ranks", ranks, {1, std::numeric_limits<int>::max()},
                "ranks that wrote this dump; any number can go on from it");
}

void Cursor::fields(DumpFields& fields) {
  auto kind = static_cast<int64_t>(next.kind);
  fields.number("cursor/kind", kind, {0, static_cast<int64_t>(TickKind::update)},
                "next tick: 0 capture_block, 1 score_block, 2 advance_block, 3 replay_block, 4 "
                "prompt_backward_block, 5 update");
  next.kind = static_cast<TickKind>(kind);
  fields.number("cursor/between_steps", between_steps, {0, 1},
                "1: the next tick is the first of its step");
  fields.number("cursor/at_end", at_end, {0, between_steps}, "1: all steps of the deck were done");
  const Limits inside = between_steps != 0 ? exactly(0) : Limits();
  fields.number("cursor/step", next.step, {}, "next tick: optimizer step, from 0");
  fields.number("cursor/group", next.group, inside, "next tick: group of the step, from 0");
  fields.number("cursor/response", next.response, inside,
                "next tick: response of the group, from 0");
  fields.number("cursor/block", next.block, inside,
                "next tick: block of prompt or response, from 0");
  fields.number("cursor/ticks", ticks, {}, "ticks done since the run began");
}

RunIdentity identity_of(const Problem& problem, const Grid& grid) {
  RunIdentity identity{.deck = problem.deck,
                       .model = problem.checkpoint.folder(),
                       .model_digest = {},
                       .rollouts = problem.rollouts.file,
                       .rollouts_digest = {},
                       .ranks = grid.size()};
  agree(grid, [&] {
    if (grid.rank() == 0) identity.model_digest = problem.checkpoint.digest();
  });
  identity.model_digest = grid.broadcast(identity.model_digest, 0);
  identity.rollouts_digest = file_digest(problem.rollouts.file, grid);
  return identity;
}

Notes check_restart(const RunIdentity& dumped, const RunIdentity& now, const std::string& dump,
                    bool between_steps, bool force) {
  Notes notes;
  if (dumped.model_digest != now.model_digest)
    refuse(dump, str("it is of another model: {}, not {} (digests {} and {})", dumped.model,
                     now.model, dumped.model_digest, now.model_digest));
  if (dumped.rollouts_digest != now.rollouts_digest)
    notes.push_back(
        forced(dump,
               str("rollouts.file has other content: {} (digest {}), was {} ({})", now.rollouts,
                   now.rollouts_digest, dumped.rollouts, dumped.rollouts_digest),
               between_steps, force));
  for (Note& note : check_deck(dumped.deck, now.deck, dump, between_steps, force))
    notes.push_back(std::move(note));
  return notes;
}

Notes check_deck(const std::string& before, const std::string& now, const std::string& dump,
                 bool between_steps, bool force) {
  Notes notes;
  std::vector<Change> changed;
  try {
    changed = changes(before, now);
  } catch (const Error& error) {
    throw Error(str("cannot go on from {}: its deck is damaged: {}", dump, error.what()), 1, true);
  }
  for (const Change& change : changed) {
    const std::string what = str("{} = {}, was {}", change.key, change.now, change.before);
    switch (may_change(change.key)) {
      case MayChange::yes: notes.push_back({Level::info, "restart: " + what}); break;
      case MayChange::forced: notes.push_back(forced(dump, what, between_steps, force)); break;
      case MayChange::no: refuse(dump, what + " - change it back, or start a new run"); break;
    }
  }
  return notes;
}

}  // namespace longstraw
