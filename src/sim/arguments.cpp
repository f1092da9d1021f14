#include "longstraw/sim/arguments.hpp"

#include "longstraw/core/check.hpp"
#include "longstraw/core/version.hpp"
#include "longstraw/sim/time_limit.hpp"

#include <boost/program_options.hpp>

#include <algorithm>
#include <array>

namespace longstraw {
namespace {

namespace po = boost::program_options;

constexpr const char* overview =
    R"(LongStraw: GRPO post-training on very long prompts, over MPI.

  mpirun -n N longstraw run -i deck.ini       train: rollouts in, updated weights out
  mpirun -n N longstraw score -i deck.ini -o scored.jsonl
                                              log-probabilities of given responses
  mpirun -n N longstraw verify -i deck.ini    is the gradient right, on your own data?
  longstraw inspect PATH                      what a checkpoint folder, rollouts or a dump hold
  longstraw export DUMP -o DIR                weights of a dump as a Hugging Face folder
  longstraw convert FROM -o TO                rollouts: JSON lines to HDF5, or back
  longstraw --version                         version and facts about the build
  longstraw COMMAND --help                    options of a command

Exit status: 0 finished, 1 failed, 2 bad deck or arguments, 3 stopped in time with
a good dump: submit again.)";

constexpr const char* run_help =
    R"(mpirun -n N longstraw run -i deck.ini [-d DIR] [-r auto|latest|FILE]
           [-t HH:MM:SS] [-n] [section.key=value ...]

Takes the checkpoint and the rollouts that the deck names through all steps and
writes to DIR: weights/ (a Hugging Face folder like the checkpoint), history.jsonl
(a JSON object a step), dumps/ (to go on from), deck.ini (with all defaults), log.

  -i, --input FILE   the deck: INI sections, see input/defaults.ini for every key
  -d, --dir DIR      run folder to make (default: run)
  -r, --restart auto       go on from the run folder's latest dump, or start anew where
                           there is none: the same command for every submission
                latest     from the latest dump, which must be there
                FILE       from this dump
  --force            go on although the deck or the rollouts give the run another
                     meaning (from dumps between two steps)
  -t, --time HH:MM:SS
                     stop in time, with a dump: counted from the start of the Slurm job,
                     else of the program (also D-HH:MM:SS, MM:SS, or minutes). The end
                     of the Slurm job is heeded without it
  -n, --check        check everything that can be found without computing, and stop
  section.key=value  replaces what the deck says

A run also stops at its next tick, dumps, and ends with status 3 on SIGTERM, SIGINT,
SIGUSR1 or SIGUSR2 to any one rank (a second signal ends it at once, without a dump)
and when a file named stop appears in DIR. mpirun passes SIGUSR1 and SIGUSR2 on.

Any number of ranks gives the same result up to rounding; the same number, the
same bits. First try:  mpirun -n 2 longstraw run -i input/recall.ini)";

constexpr const char* score_help =
    R"(mpirun -n N longstraw score -i deck.ini -o FILE [--as policy|reference] [section.key=value]

Computes the log-probability of every response token under the deck's checkpoint
(at objective.temperature) and writes the deck's rollouts with them to FILE.

  -i, --input FILE   the deck, as for run
  -o, --output FILE  the scored rollouts, of the same kind; must not exist
  --as policy        as `logprobs` (default): old log-probabilities
  --as reference     as `ref_logprobs`: score under the reference checkpoint with
                     model.checkpoint=FOLDER
  -n, --check        check everything that can be found without computing, and stop)";

constexpr const char* verify_help =
    R"(mpirun -n N longstraw verify -i deck.ini [-o FILE] [--directions K] [--against FILE]
           [section.key=value ...]

For the deck's first step, on its checkpoint and rollouts; changes nothing. Tells
  - how far the frozen gradient is from the exact one, in total, by layer, by kind;
  - whether the exact gradient is the slope of the loss: central differences of the
    loss along the gradient and along random directions, in the deck's precision
    and in float64;
  - what float32 costs: the exact gradient against that of float64;
  - whether another run (on other ranks, say) has the same gradient.
Ends with status 1 when a bound is exceeded; bounds stand beside the figures.

  -i, --input FILE   the deck, as for run
  -o, --output FILE  the figures as JSON too; must not exist
  --directions K     random directions (default 2, from run.seed); 0: no differences
  --against FILE     gradient-0.h5 of another run of the same deck, as written by
                     longstraw run ... run.steps=1 output.gradients=true
  -n, --check        check everything that can be found without computing, and stop

Memory: weights and gradient twice over; time: about five steps, in float64 most.)";

constexpr const char* inspect_help =
    R"(longstraw inspect PATH [--check]

A checkpoint folder: family, layers, parameters, bytes, what is not used.
A dump: the run, where in it, bytes by label; --check computes its checksums too.
A rollouts file (JSON lines or HDF5): groups, lengths, rewards, groups without
signal. Many ranks share the work on long prompts.)";

constexpr const char* export_help =
    R"(longstraw export DUMP -o DIR [--masters] [--checkpoint FOLDER]

Writes the weights of a dump of any moment to DIR, a Hugging Face folder like the
checkpoint that the run started from.

  -o, --output DIR      the folder to make; must not exist
  --masters             trained tensors in the precision of the run (F32, or F64), not
                        rounded to the types of the checkpoint
  --checkpoint FOLDER   where that checkpoint lies now, if it was moved)";

constexpr const char* convert_help =
    R"(longstraw convert FROM -o TO

Writes the rollouts FROM, JSON lines or HDF5, to TO as the other kind. Nothing is
lost on the way there and back: members that the program does not know are kept.

  -o, --output FILE  the rollouts to write; must not exist

run, score, verify and inspect take either kind, which they tell by what the file
holds. JSON lines are read whole on every rank; of a prompt in HDF5 every rank reads
only its own tokens, when it needs them, so that prompts of millions of tokens take
no memory. h5dump -A TO shows what is in the file, with meanings and units.
Messages about an HDF5 file call its N-th group line N, as in JSON lines. Memory:
one group.)";

std::string command_help(const std::string& command) {
  if (command == "run") return run_help;
  if (command == "score") return score_help;
  if (command == "verify") return verify_help;
  if (command == "inspect") return inspect_help;
  if (command == "convert") return convert_help;
  if (command == "export") return export_help;
  return overview;
}

[[noreturn]] void refuse(const std::string& what) {
  throw Error(what + " - see longstraw --help", 2, true);
}

po::options_description options_of(const std::string& command) {
  po::options_description options;
  auto add = options.add_options();
  add("help,h", "")("arguments", po::value<std::vector<std::string>>());
  if (command == "inspect") {
    add("check", "");
    return options;
  }
  if (command == "export") {
    add("output,o", po::value<std::string>())("masters", "")("checkpoint",
                                                             po::value<std::string>());
    return options;
  }
  if (command == "convert") {
    add("output,o", po::value<std::string>());
    return options;
  }
  add("input,i", po::value<std::string>())("check,n", "");
  if (command == "run")
    add("dir,d", po::value<std::string>()->default_value("run"))(
        "restart,r", po::value<std::string>())("force", "")("time,t", po::value<std::string>());
  if (command == "score")
    add("output,o", po::value<std::string>())("as",
                                              po::value<std::string>()->default_value("policy"));
  if (command == "verify")
    add("output,o", po::value<std::string>())("directions", po::value<int64_t>()->default_value(2))(
        "against", po::value<std::string>());
  return options;
}

// An empty path is a shell variable that is not set, more often than not.
void refuse_empty(const std::string& command, const po::variables_map& map) {
  for (const char* option : {"input", "dir", "output", "against", "checkpoint"})
    if (map.contains(option) && map[option].as<std::string>().empty())
      refuse(str("longstraw {}: --{} is empty", command, option));
}

po::variables_map parsed(const std::string& command, const std::vector<std::string>& words) {
  po::variables_map map;
  try {
    const auto options = options_of(command);
    po::positional_options_description positional;
    positional.add("arguments", -1);
    // Without guessing: -n must not stand for an option that merely begins with it.
    constexpr int style =
        po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
    po::store(
        po::command_line_parser(words).options(options).positional(positional).style(style).run(),
        map);
  } catch (const po::error& error) {
    refuse(str("longstraw {}: {}", command, error.what()));
  }
  refuse_empty(command, map);
  return map;
}

// The one argument that is no option.
std::string target_of(const po::variables_map& map, const std::string& refusal) {
  std::vector<std::string> words;
  if (map.contains("arguments")) words = map["arguments"].as<std::vector<std::string>>();
  if (words.size() != 1 || words[0].empty()) refuse(refusal);
  return words[0];
}

void take_deck_arguments(Arguments& arguments, const std::string& command,
                         const po::variables_map& map) {
  if (!map.contains("input")) refuse(str("longstraw {}: no deck (-i FILE)", command));
  arguments.deck = map["input"].as<std::string>();
  arguments.check_only = map.contains("check");
  if (!map.contains("arguments")) return;
  for (const auto& word : map["arguments"].as<std::vector<std::string>>()) {
    if (word.find('=') == std::string::npos)
      refuse(str("longstraw {}: \"{}\" is neither an option nor section.key=value", command, word));
    arguments.overrides.push_back(word);
  }
}

int64_t time_limit(const std::string& text) {
  try {
    return parse_duration(text);
  } catch (const Error& error) {
    refuse(str("longstraw run: -t {}", error.what()));
  }
}

void take_run_arguments(Arguments& arguments, const po::variables_map& map) {
  arguments.folder = map["dir"].as<std::string>();
  if (map.contains("time")) arguments.time_limit = time_limit(map["time"].as<std::string>());
  arguments.restart.force = map.contains("force");
  if (!map.contains("restart")) {
    if (arguments.restart.force) refuse("longstraw run: --force is for a restart (-r)");
    return;
  }
  const auto from = map["restart"].as<std::string>();
  if (from.empty()) refuse("longstraw run: -r is empty - auto, latest or a dump");
  arguments.restart.from = from == "auto"     ? Restart::automatic
                           : from == "latest" ? Restart::latest
                                              : Restart::file;
  if (arguments.restart.from == Restart::file) arguments.restart.file = from;
}

void take_score_arguments(Arguments& arguments, const po::variables_map& map) {
  if (!map.contains("output")) refuse("longstraw score: no output file (-o FILE)");
  arguments.output = map["output"].as<std::string>();
  const auto as = map["as"].as<std::string>();
  if (as != "policy" && as != "reference")
    refuse(str("longstraw score: --as {} (policy or reference)", as));
  arguments.score_as = as == "reference" ? ScoreAs::reference : ScoreAs::policy;
}

void take_verify_arguments(Arguments& arguments, const po::variables_map& map) {
  constexpr int64_t most = 1000;
  if (map.contains("output")) arguments.output = map["output"].as<std::string>();
  if (map.contains("against")) arguments.against = map["against"].as<std::string>();
  arguments.directions = map["directions"].as<int64_t>();
  if (arguments.directions < 0 || arguments.directions > most)
    refuse(str("longstraw verify: --directions {} (0 to {})", arguments.directions, most));
}

}  // namespace

Arguments parse_arguments(int argc, const char* const* argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  Arguments arguments;
  if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    arguments.text = words.size() > 1 ? command_help(words[1]) : overview;
    return arguments;
  }
  const std::string command = words[0];
  if (command == "--version") {
    arguments.command = Command::version;
    return arguments;
  }
  constexpr std::array commands = {"run", "score", "verify", "inspect", "convert", "export"};
  if (std::find(commands.begin(), commands.end(), command) == commands.end())
    refuse(str("longstraw: \"{}\" is no command ({})", command, fmt::join(commands, ", ")));
  words.erase(words.begin());
  const auto map = parsed(command, words);
  if (map.contains("help")) {
    arguments.text = command_help(command);
    return arguments;
  }
  if (command == "inspect") {
    arguments.command = Command::inspect;
    arguments.check_content = map.contains("check");
    arguments.target = target_of(map, "longstraw inspect: one folder or file is needed");
    return arguments;
  }
  if (command == "export") {
    arguments.command = Command::export_weights;
    arguments.exported = {.dump = target_of(map, "longstraw export: one dump is needed"),
                          .output = {},
                          .checkpoint = {},
                          .masters = map.contains("masters")};
    if (!map.contains("output")) refuse("longstraw export: no output folder (-o DIR)");
    arguments.exported.output = map["output"].as<std::string>();
    if (map.contains("checkpoint"))
      arguments.exported.checkpoint = map["checkpoint"].as<std::string>();
    return arguments;
  }
  if (command == "convert") {
    arguments.command = Command::convert;
    arguments.target = target_of(map, "longstraw convert: one rollouts file is needed");
    if (!map.contains("output")) refuse("longstraw convert: no output file (-o FILE)");
    arguments.output = map["output"].as<std::string>();
    return arguments;
  }
  take_deck_arguments(arguments, command, map);
  if (command == "run") {
    arguments.command = Command::run;
    take_run_arguments(arguments, map);
  } else if (command == "score") {
    arguments.command = Command::score;
    take_score_arguments(arguments, map);
  } else {
    arguments.command = Command::verify;
    take_verify_arguments(arguments, map);
  }
  return arguments;
}

std::string version_lines() {
  return str("LongStraw {}\n  built    {}\n  library  {}", version_text, build_text, library_text);
}

}  // namespace longstraw
