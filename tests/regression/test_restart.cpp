// Restarts as a user sees them: which dump is taken, what is refused, what may change, what the
// history says (trials 24, 28, 29, 35, 52).
#include "longstraw/io/dump_folder.hpp"
#include "regression/program.hpp"
#include "support/mounted.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

namespace longstraw::program {
namespace {

namespace fs = std::filesystem;
using support::Mounted;
using support::small_disk;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int failed = 1, refused = 2;

class Restart : public testing::Test {
 protected:
  Restart() {
    place.copy_model("hybrid_tied_bf16", "model");
    fs::copy(golden_folder("hybrid_tied_bf16") + "/rollouts.jsonl", place / "rollouts.jsonl");
    place.write_deck("deck.ini", "model", "rollouts.jsonl",
                     "[optimizer]\nlr = 0.01\n[parallel]\nblock_tokens = 16\n");
  }

  /// The uninterrupted run on 2 ranks, with a dump after every third tick.
  void run_whole() {
    place.succeed(2, "run -i deck.ini -d whole dump.every_ticks=3 dump.keep=1000");
    for (const auto& entry : fs::directory_iterator(place / "whole/dumps")) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("dump-")) dumps.push_back(name);
    }
    std::sort(dumps.begin(), dumps.end());
    ASSERT_GT(dumps.size(), 5u);
  }
  int64_t number(const std::string& dump, const std::string& path) const {
    return DumpFileReader(place / "whole/dumps/" + dump).number(path);
  }
  /// The first dump of the second step that lies within it, after its capture.
  std::string within() const {
    for (const auto& dump : dumps)
      if (number(dump, "cursor/step") == 1 && number(dump, "cursor/kind") > 0) return dump;
    return "none";
  }
  /// As if the run had been killed right after `dump`.
  void interrupt(const std::string& folder, const std::string& dump) const {
    fs::remove_all(place / folder);
    fs::create_directories(place / folder + "/dumps");
    for (const auto& name : dumps)
      if (name <= dump) fs::copy(place / "whole/dumps/" + name, place / folder + "/dumps/" + name);
    for (const auto& entry : fs::directory_iterator(place / "whole/dumps"))
      if (entry.path().filename().string().starts_with("prompt-"))
        fs::copy(entry.path(), place / folder + "/dumps");
    fs::create_symlink(dump, place / folder + "/dumps/latest");
    fs::copy(place / "whole/deck.ini", place / folder + "/deck.ini");
    // The history had gone on.
    fs::copy(place / "whole/history.jsonl", place / folder + "/history.jsonl");
  }
  void expect_the_weights_of_the_whole(const std::string& folder) const {
    EXPECT_THAT(
        differences(files_of(place / "whole/weights"), files_of(place / folder + "/weights")),
        IsEmpty());
  }
  static std::vector<int64_t> steps_of(const std::vector<Json>& history) {
    std::vector<int64_t> steps;
    for (const Json& line : history) steps.push_back(line["step"]);
    return steps;
  }
  std::set<std::string> segments(const std::string& folder) const {
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(place / folder + "/dumps"))
      if (entry.path().filename().string().starts_with("prompt-"))
        found.insert(entry.path().filename().string());
    return found;
  }
  /// All but the log, which says what was tried.
  std::map<std::string, std::string> results(const std::string& folder) const {
    auto files = files_of(place / folder);
    files.erase("log");
    return files;
  }

  Workplace place;
  std::vector<std::string> dumps;
};

TEST_F(Restart, AutoStartsAnewWithoutADumpAndChangesNothingAtTheEnd) {
  expect_refused(place, "run -i deck.ini -d out -r latest", refused, {"-r latest", "no dump"});
  const Outcome first = place.succeed(2, "run -i deck.ini -d out -r auto");
  EXPECT_THAT(first.out, HasSubstr("a new run"));
  {
    const auto before = results("out");
    const Outcome again = place.succeed(3, "run -i deck.ini -d out -r auto");
    EXPECT_THAT(again.out, HasSubstr("finished already"));
    EXPECT_THAT(differences(before, results("out")), IsEmpty());
  }
  fs::remove_all(place / "out/dumps");
  const auto before = results("out");
  EXPECT_THAT(place.succeed(2, "run -i deck.ini -d out -r auto").out,
              HasSubstr("finished already"));
  EXPECT_THAT(differences(before, results("out")), IsEmpty());
}

TEST_F(Restart, WhatAnEarlierLifeFinishedCountsAsFinishedAndNothingElseDoes) {
  const std::string arguments = "run -i deck.ini -d out -r auto dump.at_exit=false ";
  place.succeed(2, arguments + "run.steps=1");
  // Its dumps are all of its middle, and it has finished.
  place.succeed(2, arguments + "run.steps=2 dump.every_ticks=5");
  const auto before = results("out");
  EXPECT_THAT(place.succeed(2, arguments + "run.steps=2").out, HasSubstr("finished already"));
  EXPECT_THAT(differences(before, results("out")), IsEmpty());
  expect_refused(place, arguments + "run.steps=2 gradient.mode=frozen", refused,
                 {"out/deck.ini", "gradient.mode = frozen, was exact"});
  // Going back to one of them is another run, whose end is not that of the first.
  const std::string back = "run -i deck.ini -d out optimizer.lr=0.02 -r " +
                           (place / "out/dumps/latest") + " dump.at_exit=false ";
  place.succeed(2, back);
  EXPECT_THAT(differences(before, results("out")),
              Contains("weights/model-00001-of-00002.safetensors"));
}

TEST_F(Restart, FewerStepsThanTheDumpIsInEndTheRunThere) {
  run_whole();
  interrupt("out", within());
  place.succeed(2, "run -i deck.ini -d out -r auto run.steps=1");
  const auto history = history_of(place / "out");
  EXPECT_THAT(steps_of(history), ElementsAre(0));
  place.succeed(2, "run -i deck.ini -d one run.steps=1");
  EXPECT_THAT(differences(files_of(place / "one/weights"), files_of(place / "out/weights")),
              IsEmpty());
  expect_refused(place, "run -i deck.ini -d more run.steps=1 -r whole/dumps/latest", refused,
                 {"whole/dumps/latest", "after step 2", "run.steps"});
  // And more of them go on from that end.
  place.succeed(2, "run -i deck.ini -d out -r auto run.steps=2");
  expect_the_weights_of_the_whole("out");
}

TEST_F(Restart, DumpsComeInTimeAndTheNewestAreKept) {
  const Outcome run = place.succeed(2,
                                    "run -i deck.ini -d out dump.every_ticks=0 dump.at_exit=false "
                                    "dump.every_seconds=0.001 dump.keep=3");
  std::vector<std::string> kept;
  for (const auto& entry : fs::directory_iterator(place / "out/dumps"))
    if (has_dump_name(entry.path().string())) kept.push_back(entry.path().filename().string());
  std::sort(kept.begin(), kept.end());
  ASSERT_EQ(kept.size(), 3u) << run.out;
  EXPECT_EQ(fs::read_symlink(place / "out/dumps/latest"), kept.back());
  std::set<std::string> needed;
  for (const auto& name : kept) {
    std::istringstream names(DumpFileReader(place / "out/dumps/" + name).attribute("segments"));
    for (std::string segment; names >> segment;) needed.insert(segment);
  }
  EXPECT_EQ(segments("out"), needed);
  // Killed between a dump and its link: the newest is the latest.
  fs::remove(place / "out/dumps/latest");
  fs::remove_all(place / "out/weights");
  EXPECT_THAT(place.succeed(2, "run -i deck.ini -d out -r auto").out,
              HasSubstr("restart    from out/dumps/" + kept.back()));
}

TEST_F(Restart, DumpsThatCannotBeTakenAreRefused) {
  expect_refused(place, "run -i deck.ini -d out -r \"\"", refused, {"-r is empty"});
  run_whole();
  const auto expect = [&](const std::string& file, int status,
                          const std::vector<std::string>& named) {
    expect_refused(place, "run -i deck.ini -d out -r " + file, status, named);
  };
  expect("nothing.h5", refused, {"nothing.h5", "no dump"});
  write_file(place / "empty.h5", "");
  expect("empty.h5", failed, {"empty.h5", "no whole dump"});
  fs::create_directory(place / "folder.h5");
  expect("folder.h5", failed, {"folder.h5", "no regular file"});
  // Without what it refers to.
  fs::copy(place / "whole/dumps/" + within(), place / "alone.h5");
  expect("alone.h5", failed, {"alone.h5", "missing"});
}

TEST_F(Restart, ADamagedLatestDumpIsRefusedWhereItLies) {
  run_whole();
  interrupt("out", within());
  const std::string dump = place / "out/dumps/" + within();
  std::string bytes = read_file(dump);
  std::string name;
  {
    const h5::File file = h5::open_file(dump);
    name = "optimizer/first_moment/" + h5::names(file, "optimizer/first_moment").front();
    const h5::Dataset set(H5Dopen2(file, name.c_str(), H5P_DEFAULT), name);
    bytes[H5Dget_offset(set) + 5] ^= 4;
  }
  write_file(dump, bytes);
  const std::string other = "another can be named by -r: out/dumps/dump-";
  expect_refused(place, "run -i deck.ini -d out -r auto", failed,
                 {within(), name, "does not match its checksum", other});
  fs::remove(dump);
  const Outcome outcome = place.run(2, "run -i deck.ini -d out -r auto");
  EXPECT_EQ(outcome.status, refused);
  EXPECT_THAT(outcome.errors(),
              ElementsAre(AllOf(HasSubstr(within()), HasSubstr("no dump"), HasSubstr(other))));
}

TEST_F(Restart, ChangesThatGiveAnotherMeaningAreRefusedByName) {
  run_whole();
  interrupt("out", within());
  const std::string go_on = "run -i deck.ini -d out -r latest ";
  place.copy_model("hybrid_tied_bf16", "other");
  edit_json(place / "other/config.json", [](Json& config) { config["remark"] = "another"; });
  expect_refused(place, go_on + "model.checkpoint=other", refused, {"another model", "other"});
  write_file(place / "more.jsonl", read_file(place / "rollouts.jsonl") + "\n");
  const std::string between = "run -i deck.ini -d more -r whole/dumps/latest ";
  for (const auto& [change, said] :
       {std::pair("rollouts.file=more.jsonl", "rollouts.file has other content"),
        std::pair("parallel.block_tokens=8", "parallel.block_tokens = 8, was 16")}) {
    expect_refused(place, between + change, refused, {said, "take it by --force"});
    for (const char* force : {"", "--force "})
      expect_refused(place, go_on + force + change, refused, {said, "lies within a step"});
  }
  expect_refused(place, go_on + "--force model.precision=float64", refused,
                 {"model.precision = float64, was float32"});
}

TEST_F(Restart, AllowedChangesAreTakenAndSaid) {
  place.succeed(2, "run -i deck.ini -d out run.steps=1");
  const Outcome more = place.succeed(
      2,
      "run -i deck.ini -d out -r auto run.steps=2 optimizer.lr=0.02 dump.keep=5 --force "
      "parallel.block_tokens=8 gradient.mode=frozen");
  const std::string log = read_file(place / "out/log");
  for (const std::string line :
       {"restart: run.steps = 2, was 1", "restart: optimizer.lr = 0.02, was 0.01",
        "restart: dump.keep = 5, was 2",
        "restart: parallel.block_tokens = 8, was 16 (taken by --force)",
        "restart: gradient.mode = frozen, was exact (taken by --force)"}) {
    EXPECT_THAT(more.all(), HasSubstr(line));
    EXPECT_THAT(log, HasSubstr(line));
  }
  const auto history = history_of(place / "out");
  EXPECT_THAT(steps_of(history), ElementsAre(0, 1));
  EXPECT_EQ(history.at(0)["lr"], 0.01);
  EXPECT_EQ(history.at(1)["lr"], 0.02);
  EXPECT_EQ(history.at(1)["gradient_mode"], "frozen");
  EXPECT_THAT(read_file(place / "out/deck.ini"), HasSubstr("lr = 0.02\n"));
  // A step by itself is as if no dump had been between.
  const Outcome fewer = place.succeed(2,
                                      "run -i deck.ini -d out -r auto run.steps=1 --force "
                                      "parallel.block_tokens=8 gradient.mode=frozen");
  EXPECT_THAT(fewer.out, HasSubstr("finished already"));
}

TEST_F(Restart, ASecondLifeGoesOnWhereTheFirstWas) {
  run_whole();
  const std::string dump = within();
  interrupt("out", dump);
  write_file(place / "out/dumps/dump-00009999.h5.tmp", "half of one");
  const auto before = segments("out");
  const Outcome life =
      place.succeed(2, "run -i deck.ini -d out -r auto dump.every_ticks=1 dump.keep=1000");
  EXPECT_THAT(life.all(), HasSubstr("dump-00009999.h5.tmp was not finished and is passed over"));
  EXPECT_FALSE(fs::exists(place / "out/dumps/dump-00009999.h5.tmp"));
  expect_the_weights_of_the_whole("out");
  const auto history = history_of(place / "out");
  EXPECT_THAT(steps_of(history), ElementsAre(0, 1));
  EXPECT_FALSE(history.at(0).contains("restarts"));
  EXPECT_THAT(history.at(1)["restarts"], ElementsAre(dump));
  // What the capture had written is not written again.
  for (const auto& name : segments("out"))
    if (!before.contains(name)) ADD_FAILURE() << name;
}

TEST_F(Restart, DumpsOfTwoRanksGoOnAtOthers) {
  run_whole();
  const std::string dump = place / "whole/dumps/" + within();
  const auto whole = history_of(place / "whole");
  for (const int ranks : {1, 3, 8}) {
    const std::string folder = str("on-{}", ranks);
    const Outcome life = place.succeed(ranks, "run -i deck.ini -d " + folder + " -r " + dump);
    // At once: this folder has none yet.
    EXPECT_THAT(life.out, HasSubstr(str("dump {} (", number(within(), "cursor/ticks"))));
    const auto history = history_of(place / folder);
    ASSERT_EQ(history.size(), whole.size());
    for (const char* key : {"loss", "grad_norm", "entropy"})
      EXPECT_NEAR(history[1][key], whole[1][key], 1e-4 * std::abs(whole[1][key].get<double>()))
          << ranks << " ranks, " << key;
  }
}

// ---- the disk

TEST_F(Restart, AFullDiskCostsNothingButTheDump) {
  run_whole();
  interrupt("out", dumps.at(0));
  const auto size = static_cast<int64_t>(fs::file_size(place / "out/dumps/" + dumps.at(0)));
  // Room for the dumps that are there, and for no other.
  int64_t used = 0;
  for (const auto& entry : fs::directory_iterator(place / "out/dumps"))
    if (!entry.is_symlink()) used += static_cast<int64_t>(entry.file_size()) + 8192;
  fs::rename(place / "out/dumps", place / "kept");
  const Mounted disk(place / "out/dumps", small_disk(str("{}k", (used + size / 2) / 1024)));
  if (!disk) GTEST_SKIP() << "mounting is not allowed here";
  fs::copy(place / "kept", place / "out/dumps",
           fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  const Outcome life = place.succeed(2, "run -i deck.ini -d out -r auto dump.every_ticks=4");
  EXPECT_THAT(life.err + life.out, HasSubstr("no dump: no room for "));
  EXPECT_THAT(life.all(), testing::ContainsRegex("[0-9]+ bytes are needed, [0-9]+ are free"));
  expect_the_weights_of_the_whole("out");
  EXPECT_EQ(fs::read_symlink(place / "out/dumps/latest"), dumps.at(0));
  for (const auto& entry : fs::directory_iterator(place / "out/dumps"))
    EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
  // The earlier dump can be gone on from, also where not even a name has room.
  fs::remove_all(place / "out/weights");
  {
    std::ofstream fill(place / "out/dumps/fill", std::ios::binary);
    const std::string block(1 << 12, 'x');
    while (fill.write(block.data(), std::ssize(block)).flush()) {
    }
  }
  const Outcome last = place.succeed(2, "run -i deck.ini -d out -r latest dump.every_ticks=4");
  EXPECT_THAT(last.all(), HasSubstr("no dump: "));
  EXPECT_THAT(last.all(), testing::ContainsRegex("[0-9]+ bytes are needed, [0-9]+ are free"));
  expect_the_weights_of_the_whole("out");
}

// HDF5 itself must never meet a full disk: it would crash at the program's end.
TEST_F(Restart, DumpsUntilTheDiskIsFullAreFollowedByWarningsOnly) {
  for (const char* size : {"3000k", "4m"}) {
    const Mounted disk(place / size, small_disk(size));
    if (!disk) GTEST_SKIP() << "mounting is not allowed here";
    const Outcome run =
        place.succeed(2, str("run -i deck.ini -d {}/run dump.every_ticks=1 dump.keep=1000", size));
    EXPECT_THAT(run.all(), HasSubstr("no dump: no room for "));
  }
}

TEST_F(Restart, AFileInPlaceOfAFolderIsRefused) {
  for (const std::string name : {"dumps", "weights"}) {
    fs::remove_all(place / "out");
    fs::create_directory(place / "out");
    write_file(place / "out/" + name, "mine");
    expect_refused(place, "run -i deck.ini -d out -r auto", refused, {name, "no folder"});
  }
}

// The clock of the machine before was ahead.
TEST_F(Restart, TheLatestDumpStaysWhateverTheClockSays) {
  run_whole();
  interrupt("out", dumps.at(4));
  for (const auto& entry : fs::directory_iterator(place / "out/dumps"))
    if (!entry.is_symlink())
      fs::last_write_time(entry.path(), fs::file_time_type::clock::now() + std::chrono::hours(24));
  write_file(place / "out/dumps/dump-of-mine.h5", "mine");
  place.succeed(2, "run -i deck.ini -d out -r auto dump.every_ticks=1 dump.keep=2");
  EXPECT_TRUE(fs::exists(place / "out/dumps/latest"));
  EXPECT_TRUE(fs::exists(place / "out/dumps/dump-of-mine.h5"));
  EXPECT_THAT(place.succeed(2, "run -i deck.ini -d out -r auto").out,
              HasSubstr("finished already"));
}

}  // namespace
}  // namespace longstraw::program
