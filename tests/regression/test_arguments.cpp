// The command line: what it offers, and what it refuses.
#include "regression/program.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace longstraw::program {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr int bad_arguments = 2, failed = 1;

class Arguments : public testing::Test {
 protected:
  Arguments() {
    place.write_deck("deck.ini", golden_folder("hybrid") + "/model",
                     golden_folder("hybrid") + "/rollouts.jsonl");
  }

  // What is found before there is a deck to read.
  void expect_bad(const std::string& arguments, const std::vector<std::string>& named) {
    const auto before = place.files();
    const Outcome outcome = place.run(2, arguments);
    SCOPED_TRACE(arguments + "\n" + outcome.all());
    EXPECT_EQ(outcome.status, bad_arguments);
    EXPECT_THAT(outcome.err, Not(HasSubstr("MPI_ABORT")));
    ASSERT_EQ(outcome.errors().size(), 1u);
    for (const auto& part : named) EXPECT_THAT(outcome.errors()[0], HasSubstr(part));
    EXPECT_THAT(differences(before, place.files()), IsEmpty());
  }

  Workplace place;
};

TEST_F(Arguments, HelpIsThereForEveryCommandAndSaidOnce) {
  for (const std::string arguments : {"--help", "", "help", "-h"}) {
    const Outcome outcome = place.succeed(2, arguments);
    for (const std::string word :
         {"longstraw run -i", "longstraw score", "inspect", "convert FROM -o TO", "--version",
          "Exit status: 0 finished, 1 failed, 2 bad deck or arguments"})
      EXPECT_THAT(outcome.out, HasSubstr(word)) << arguments;
    EXPECT_EQ(outcome.out.find("GRPO"), outcome.out.rfind("GRPO")) << "said by more than one rank";
  }
  const std::map<std::string, std::vector<std::string>> words = {
      {"run",
       {"-i, --input FILE", "-d, --dir DIR", "-n, --check", "section.key=value", "weights/"}},
      {"score", {"-o, --output FILE", "--as reference", "-n, --check"}},
      {"inspect", {"PATH", "checkpoint folder", "rollouts file"}},
      {"convert", {"FROM -o TO", "-o, --output FILE", "HDF5", "JSON lines", "h5dump -A"}}};
  for (const auto& [command, parts] : words)
    for (const auto& arguments : {command + " --help", command + " -h", "help " + command}) {
      const Outcome outcome = place.succeed(0, arguments);
      for (const auto& part : parts) EXPECT_THAT(outcome.out, HasSubstr(part)) << arguments;
      EXPECT_THAT(outcome.err, IsEmpty());
    }
}

TEST_F(Arguments, VersionHasFactsOfTheBuild) {
  const Outcome outcome = place.succeed(2, "--version");
  for (const std::string word : {"LongStraw 0.", "built", "native", "MPI", "HDF5", "Kokkos"})
    EXPECT_THAT(outcome.out, HasSubstr(word));
  EXPECT_EQ(outcome.out.find("LongStraw"), outcome.out.rfind("LongStraw"));
}

TEST_F(Arguments, MistakesAreNamed) {
  expect_bad("train -i deck.ini",
             {"\"train\"", "no command", "(run, score, verify, inspect, convert, export)"});
  expect_bad("-i deck.ini", {"\"-i\"", "no command"});
  expect_bad("run", {"run", "no deck", "-i FILE"});
  expect_bad("run -i", {"run", "input"});
  expect_bad("run -i deck.ini -i deck.ini", {"run", "input"});
  expect_bad("run -i deck.ini --dry", {"run", "--dry"});
  expect_bad("run -i deck.ini -x", {"run", "-x"});
  expect_bad("run -i deck.ini --che", {"run", "--che"});
  expect_bad("run -i deck.ini word", {"\"word\"", "section.key=value"});
  expect_bad("run -i deck.ini -o out.jsonl", {"run", "-o"});
  expect_bad("score -i deck.ini", {"score", "-o FILE"});
  expect_bad("score -i deck.ini -o out.jsonl --as teacher",
             {"--as teacher", "policy or reference"});
  expect_bad("score -i deck.ini -o out.jsonl -d out", {"score", "-d"});
  expect_bad("run -i deck.ini -d ''", {"run", "--dir is empty"});
  expect_bad("run -i ''", {"run", "--input is empty"});
  expect_bad("score -i deck.ini -o ''", {"score", "--output is empty"});
  expect_bad("verify -i deck.ini --against ''", {"verify", "--against is empty"});
  expect_bad("inspect", {"inspect", "one folder or file"});
  expect_bad("inspect deck.ini deck.ini", {"inspect", "one folder or file"});
  expect_bad("inspect nowhere", {"nowhere", "no such file or folder"});
  expect_bad("convert -o a.h5", {"convert", "one rollouts file"});
  expect_bad("convert deck.ini", {"convert", "-o FILE"});
  expect_bad("convert nowhere -o a.h5", {"nowhere", "no such file"});
  expect_bad("convert deck.ini -o deck.ini", {"deck.ini", "exists"});
  expect_bad("convert deck.ini -o a.h5 -i deck.ini", {"convert", "-i"});
}

TEST_F(Arguments, DecksThatCannotBeReadAreRefused) {
  expect_refused(place, "run -i nowhere.ini -d out", bad_arguments, {"nowhere.ini", "-i"});
  expect_refused(place, "run -i . -d out", bad_arguments, {". ", "no regular file", "-i"});
  expect_refused(place, "score -i nowhere.ini -o out.jsonl", bad_arguments, {"nowhere.ini", "-i"});
}

TEST_F(Arguments, RunFoldersThatCannotBeUsedAreRefused) {
  std::filesystem::create_directory(place / "old");
  write_file(place / "old/history.jsonl", "{\"step\":0}\n");
  expect_refused(place, "run -i deck.ini -d old", bad_arguments,
                 {place / "old", "history.jsonl of another run"});
  std::filesystem::create_directories(place / "trained/weights");
  expect_refused(place, "run -i deck.ini -d trained", bad_arguments,
                 {place / "trained", "weights"});
  // Where root cannot make files either.
  expect_refused(place, "run -i deck.ini -d /proc/run", bad_arguments,
                 {"/proc/run", "cannot write to /proc", "-d"});
  expect_refused(place, "run -i deck.ini -d deck.ini/run", bad_arguments,
                 {place / "deck.ini", "no folder"});
  expect_refused(place, "run -i deck.ini -d deck.ini", bad_arguments,
                 {place / "deck.ini", "no folder"});
}

TEST_F(Arguments, OutputsThatCannotBeWrittenAreRefusedBeforeScoring) {
  write_file(place / "old.jsonl", "{}\n");
  expect_refused(place, "score -i deck.ini -o old.jsonl", bad_arguments, {"old.jsonl", "exists"});
  expect_refused(place, "score -i deck.ini -o nowhere/out.jsonl", bad_arguments,
                 {"nowhere/out.jsonl", place / "nowhere", "-o"});
  expect_refused(place, "score -i deck.ini -o /proc/out.jsonl", bad_arguments,
                 {"/proc/out.jsonl", "cannot write to /proc", "-o"});
  expect_refused(place, "score -i deck.ini -o .", bad_arguments, {"exists"});
}

TEST_F(Arguments, ACheckWritesNothing) {
  const auto before = place.files();
  for (const std::string arguments :
       {"run -i deck.ini -n", "run -n -i deck.ini -d a/b/c", "score -n -i deck.ini -o out.jsonl"}) {
    EXPECT_THAT(place.succeed(2, arguments).out, HasSubstr("checked: ")) << arguments;
    EXPECT_THAT(differences(before, place.files()), IsEmpty()) << arguments;
  }
}

// Trial 51: a launcher and an MPI that do not know each other start N programs of one rank each.
TEST_F(Arguments, LaunchersThatThisMpiDoesNotKnowAreRefused) {
  const auto before = place.files();
  const std::string commands[] = {"run -i deck.ini -d out", "run -n -i deck.ini -d out",
                                  "score -i deck.ini -o out.jsonl"};
  for (const std::string variables :
       {"SLURM_NTASKS=2", "SLURM_NTASKS=2 SLURM_PROCID=0", "PMI_SIZE=3 PMI_RANK=0"})
    for (const auto& command : commands) {
      const Outcome outcome = place.run(0, command, variables);
      EXPECT_EQ(outcome.status, failed) << variables;
      ASSERT_EQ(outcome.errors().size(), 1u) << variables << "\n" << outcome.all();
      const std::string variable = variables.substr(0, variables.find('='));
      for (const std::string& part : {variable, std::string("one rank"), std::string("--mpi=pmix")})
        EXPECT_THAT(outcome.errors()[0], HasSubstr(part));
    }
  // The others among them end too, and leave the message to the first.
  for (const std::string variables : {"SLURM_NTASKS=2 SLURM_PROCID=1", "PMI_SIZE=3 PMI_RANK=2"}) {
    const Outcome outcome = place.run(0, commands[0], variables);
    EXPECT_EQ(outcome.status, failed);
    EXPECT_THAT(outcome.all(), IsEmpty());
  }
  EXPECT_THAT(differences(before, place.files()), IsEmpty());
}

TEST_F(Arguments, KnownLaunchersAndSingleProcessesAreFine) {
  EXPECT_EQ(place.run(0, "run -n -i deck.ini", "SLURM_NTASKS=1 SLURM_PROCID=0").status, 0);
  // mpirun inside an allocation, which has more tasks than this start uses
  EXPECT_EQ(place.run(1, "run -n -i deck.ini", "SLURM_NTASKS=4 SLURM_PROCID=0").status, 0);
  // what computes nothing needs no ranks
  EXPECT_EQ(place.run(0, "inspect " + golden_folder("hybrid") + "/model", "SLURM_NTASKS=4").status,
            0);
}

}  // namespace
}  // namespace longstraw::program
