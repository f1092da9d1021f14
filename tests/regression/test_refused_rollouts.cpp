// Rollouts that are refused before any work, by file, line, group, response and field (trials 14 to
// 16, 18, 47 and their kinds). What each message says in full is tested with the reader itself.
#include "regression/program.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace longstraw::program {
namespace {

using testing::HasSubstr;

constexpr int failed = 1;
constexpr int vocab = 64;  // of the golden case

class RefusedRollouts : public testing::Test {
 protected:
  RefusedRollouts() : good(group("g", {1, 2, 3}, {})) {
    for (int i = 0; i < 3; ++i)
      good["responses"].push_back(response(str("r{}", i), random_ids(4, vocab, i), i == 1));
    place.write_deck("deck.ini", golden_folder("hybrid") + "/model", "rollouts.jsonl");
  }

  // Two good groups with a changed one between them.
  void expect_change(const std::function<void(Json&)>& change,
                     const std::vector<std::string>& named) {
    Json bad = good;
    change(bad);
    expect_text(bad.dump(), named);
  }
  void expect_text(const std::string& line, const std::vector<std::string>& named,
                   const std::string& more = "") {
    write_file(place / "rollouts.jsonl",
               other("a").dump() + "\n" + line + "\n" + other("b").dump());
    std::vector<std::string> parts = named;
    parts.push_back(place / "rollouts.jsonl");
    expect_refused(place, "run -i deck.ini -d out " + more, failed, parts);
  }
  // The good group with this text as a reward.
  std::string with_reward(const std::string& reward) const {
    Json bad = good;
    bad["responses"][1]["reward"] = "@";
    std::string line = bad.dump();
    return line.replace(line.find("\"@\""), 3, reward);
  }

  Json other(const std::string& id) const {
    Json copy = good;
    copy["id"] = id;
    copy["prompt"] = random_ids(5, vocab, 99 + static_cast<unsigned>(id[0]));
    for (Json& one : copy["responses"]) one["id"] = id + one["id"].get<std::string>();
    return copy;
  }

  Workplace place;
  Json good;
};

// Trial 14.
TEST_F(RefusedRollouts, RewardsThatAreNoNumbers) {
  for (const std::string reward : {"NaN", "-Infinity", "1e999", "\"0.5\"", "null"})
    expect_text(with_reward(reward), {"line 2", "response r1", "reward"});
  expect_change([](Json& g) { g["responses"][1].erase("reward"); },
                {"line 2", "group g", "response r1", "reward is missing"});
}

// Trial 14: dropping them is a choice of the deck, and counted.
TEST_F(RefusedRollouts, BadSamplesCanBeDroppedAndAreCounted) {
  Json bad = good;
  bad["responses"][1]["reward"] = "0.5";
  bad["responses"][2].erase("reward");
  place.write_rollouts("rollouts.jsonl", {other("a"), bad, other("b")});
  const Outcome outcome = place.succeed(
      2, "run -i deck.ini -d out rollouts.on_bad_sample=drop rollouts.groups_per_step=3");
  EXPECT_THAT(outcome.err, HasSubstr("response r1"));
  EXPECT_THAT(outcome.err, HasSubstr("response r2"));
  EXPECT_THAT(outcome.err, HasSubstr("2 response"));
  EXPECT_EQ(history_of(place / "out")[0]["response_tokens"], 4 * 7);
}

// Trial 15.
TEST_F(RefusedRollouts, ExtremeRewardsAreFiniteOrRefused) {
  expect_change(
      [](Json& g) {
        g["responses"][0]["reward"] = 1e200;
        g["responses"][1]["reward"] = -1e200;
      },
      {"line 2", "group g", "response r0", "advantage is not finite"});
  Json far = good;
  far["responses"][0]["reward"] = 1e30;
  far["responses"][1]["reward"] = -1e30;
  place.write_rollouts("rollouts.jsonl", {far});
  place.succeed(2, "run -i deck.ini -d out");
  const Json line = history_of(place / "out")[0];
  for (const char* key : {"loss", "grad_norm", "reward_std", "advantage_mean"})
    EXPECT_TRUE(line[key].is_number()) << key;
  EXPECT_EQ(line["outcome"], "updated");
}

// Trial 16.
TEST_F(RefusedRollouts, IdsThatStandTwice) {
  expect_change([&](Json& g) { g["id"] = "a"; }, {"group a", "lines 1 and 2", "different prompts"});
  expect_change([&](Json& g) { g["id"] = "a", g["prompt"] = other("a")["prompt"]; },
                {"group a", "lines 1 and 2", "same prompt"});
  expect_change([](Json& g) { g["responses"][2]["id"] = "ar0"; },
                {"response ar0", "lines 1 and 2"});
  expect_change([](Json& g) { g["responses"][2]["id"] = "r0"; }, {"response r0", "lines 2 and 2"});
  expect_change([](Json& g) { g["responses"][1]["id"] = g["responses"][2]["id"] = "r\x1b[2J"; },
                {"response r\\x1b[2J", "lines 2 and 2"});
}

// Trial 18. The vocabulary is that of the embedding, padded rows and all.
TEST_F(RefusedRollouts, TokenIdsOutsideTheVocabulary) {
  expect_change([](Json& g) { g["responses"][1]["ids"][3] = vocab; },
                {"line 2", "group g", "response r1", "ids[3]", "id 64", "vocabulary of 64"});
  expect_change([](Json& g) { g["responses"][1]["ids"][0] = -1; },
                {"line 2", "group g", "response r1", "ids[0]", "-1"});
  expect_change([](Json& g) { g["prompt"][2] = vocab; },
                {"line 2", "group g", "prompt[2]", "id 64", "vocabulary of 64"});
  expect_change([](Json& g) { g["prompt"][1] = 1.5; }, {"line 2", "group g", "prompt[1]", "1.5"});
  Json last = good;
  last["responses"][1]["ids"][3] = vocab - 1;
  place.write_rollouts("rollouts.jsonl", {last});
  place.succeed(2, "run -i deck.ini -n");
}

// Trial 47.
TEST_F(RefusedRollouts, SequencesBeyondWhatTheModelVouchesFor) {
  const auto longer = [](int tokens) {
    return [=](Json& g) { g["prompt"] = random_ids(tokens, vocab, 7); };
  };
  expect_change(longer(509), {"line 2", "group g", "513 positions", "config.json", "512",
                              "max_position_embeddings", "yarn"});
  Json longest = good;
  longer(508)(longest);
  place.write_rollouts("rollouts.jsonl", {longest});
  place.succeed(1, "run -i deck.ini -n");
}

TEST_F(RefusedRollouts, ValuesThatTheObjectiveNeeds) {
  expect_text(good.dump(),
              {"line 1", "group a", "response ar0", "logprobs", "old_logprobs = given"},
              "objective.old_logprobs=given");
  expect_text(good.dump(), {"line 1", "response ar0", "ref_logprobs", "kl_loss_coef"},
              "objective.kl_loss_coef=0.1");
  expect_text(good.dump(), {"line 1", "response ar0", "advantage", "advantages = given"},
              "objective.advantages=given");
  expect_change(
      [](Json& g) {
        g["responses"][1]["logprobs"] = {-1, -1, -1};
      },
      {"line 2", "response r1", "logprobs has 3 values for 4 ids"});
  expect_change(
      [](Json& g) {
        g["responses"][1]["logprobs"] = {-1, 0.5, -1, -1};
      },
      {"line 2", "response r1", "logprobs[1]", "0.5"});
  expect_change(
      [](Json& g) {
        g["responses"][1]["loss_mask"] = {0, 1, 2, 1};
      },
      {"line 2", "response r1", "loss_mask[2]", "0 or 1"});
}

// Nesting that would exhaust the stack of whoever walks over it.
TEST_F(RefusedRollouts, DeepJson) {
  Json deep = good;
  deep["more"] = "@";
  std::string line = deep.dump();
  line.replace(line.find("\"@\""), 3, std::string(100'000, '[') + std::string(100'000, ']'));
  expect_text(line, {"line 2", "nested more than 64 deep"});
  expect_refused(place, "score -i deck.ini -o out.jsonl", failed, {"line 2", "nested"});
}

TEST_F(RefusedRollouts, FilesAndLinesThatAreNoRollouts) {
  expect_text("{\"id\": ", {"line 2", "no valid JSON"});
  expect_text("[1]", {"line 2", "no group"});
  expect_change([](Json& g) { g["responses"] = Json::array(); },
                {"line 2", "group g", "responses"});
  expect_change([](Json& g) { g["prompt"] = Json::array(); }, {"line 2", "prompt is empty"});
  expect_change([](Json& g) { g["responses"][0]["ids"] = Json::array(); },
                {"line 2", "response r0", "ids is empty"});
  write_file(place / "rollouts.jsonl", "");
  const std::string file = place / "rollouts.jsonl";
  expect_refused(place, "run -i deck.ini -d out", failed, {file, "no group"});
  expect_refused(place, "run -i deck.ini -d out rollouts.file=nowhere.jsonl", failed,
                 {place / "nowhere.jsonl", "[rollouts] file"});
  // Reading a device or a pipe may never end.
  for (const std::string path : {".", "/dev/zero", "/proc/self/fd"})
    expect_refused(place, "run -i deck.ini -d out rollouts.file=" + path, failed,
                   {path == "." ? place.path() : path, "no regular file"});
}

}  // namespace
}  // namespace longstraw::program
