// The commands that compute values only, or nothing.
#include "regression/program.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longstraw::program {
namespace {

using testing::HasSubstr;

TEST(Score, CarriesThroughWhatItDoesNotKnow) {
  Workplace place;
  place.write_deck("deck.ini", golden_folder("hybrid") + "/model", "rollouts.jsonl");
  Json one = group("g", {1, 2, 3}, {response("r0", {4, 5}, 1), response("r1", {6}, 0)});
  one["source"] = {{"name", "a task"}, {"weight", 0.1}, {"tags", {"x", nullptr, true}}};
  one["responses"][0]["text"] = "f\u00fcnf \"\\ \n";
  one["responses"][0]["logprobs"] = {-1.5, -2.5};
  one["responses"][1]["verifier"] = {{"score", 12345678901234}, {"log", Json::array()}};
  place.write_rollouts("rollouts.jsonl", {one});
  const std::map<std::string, std::string> keys = {{"policy", "logprobs"},
                                                   {"reference", "ref_logprobs"}};
  for (const auto& [as, key] : keys) {
    const std::string to = as + ".jsonl";
    const Outcome outcome = place.succeed(2, "score -i deck.ini -o " + to + " --as " + as);
    EXPECT_THAT(outcome.out, HasSubstr("wrote " + to + ": " + key + " of 2 response(s)"));
    const auto lines = read_lines(place / to);
    ASSERT_EQ(lines.size(), 1u);
    Json expected = one;
    for (size_t i = 0; i < 2; ++i) {
      const Json& values = lines[0]["responses"][i][key];
      EXPECT_EQ(values.size(), one["responses"][i]["ids"].size());
      for (const Json& value : values) EXPECT_LT(value, 0.0);
      expected["responses"][i][key] = values;
    }
    EXPECT_EQ(lines[0], expected) << as;
  }
  EXPECT_EQ(scores_of(place / "policy.jsonl"),
            scores_of(place / "reference.jsonl", "ref_logprobs"));
}

TEST(Score, NeedsNothingOfTheObjectiveButTheTemperature) {
  Workplace place;
  // No log-probabilities, no references, no advantages, and rewards that no step could use.
  place.write_rollouts(
      "rollouts.jsonl",
      {group("g", {1, 2, 3}, {response("r0", {4, 5}, 1e300), response("r1", {6}, -1e300)})});
  place.write_deck("deck.ini", golden_folder("hybrid") + "/model", "rollouts.jsonl",
                   "[objective]\nold_logprobs = given\nkl_loss_coef = 1\nadvantages = given\n"
                   "[rollouts]\ngroups_per_step = 1\nepochs = 3\n");
  place.succeed(1, "score -i deck.ini -o 1.jsonl");
  place.succeed(1, "score -i deck.ini -o 2.jsonl objective.temperature=2");
  EXPECT_NE(scores_of(place / "1.jsonl"), scores_of(place / "2.jsonl"));
}

struct Facts {
  std::string golden;
  std::vector<std::string> of_model, of_rollouts;
};

TEST(Inspect, TellsWhatACheckpointAndRolloutsHold) {
  const Facts cases[] = {
      {"hybrid",
       {"family      qwen3_5_text\n", "layers      4: 2 linear_attention, 2 full_attention",
        "parameters  48648", "rope        default, theta 10000", "1 file(s)", "F32"},
       {"groups     1 (0 without signal", "prompts    150 to 150 tokens",
        "responses  3: 1 to 23 tokens", "logprobs 3/3, ref_logprobs 3/3"}},
      {"hybrid_tied_bf16",
       {"family      qwen3_5, tied embeddings", "8: 6 linear_attention, 2 full_attention",
        "parameters  87780", "110 tensors in 2 file(s)", "BF16", "F32", "not used    2 tensors"},
       {"groups     2 (0 without", "prompts    41 to 97 tokens", "responses  5: 3 to 12 tokens",
        "rewards    -1 to 2"}},
      {"hybrid_yarn",
       {"rope        yarn, theta 10000, factor 4, good for 128 tokens", "parameters  48648"},
       {"groups     3", "prompts    1 to 110 tokens", "logprobs 0/6"}}};
  Workplace place;
  for (const Facts& facts : cases) {
    const std::string folder = golden_folder(facts.golden);
    const Outcome model = place.succeed(1, "inspect " + folder + "/model");
    for (const auto& part : facts.of_model) EXPECT_THAT(model.out, HasSubstr(part));
    const Outcome rollouts = place.succeed(2, "inspect " + folder + "/rollouts.jsonl");
    for (const auto& part : facts.of_rollouts) EXPECT_THAT(rollouts.out, HasSubstr(part));
  }
}

TEST(Inspect, CountsGroupsWithoutSignalAndMasks) {
  Workplace place;
  Json equal = group("a", {1, 2}, {response("a0", {3, 4}, 1), response("a1", {5}, 1)});
  equal["responses"][0]["loss_mask"] = {0, 1};
  equal["responses"][1]["finish_reason"] = "length";
  Json other = group("b", {1, 2, 3}, {response("b0", {9}, 0), response("b1", {5}, 1)});
  place.write_rollouts("rollouts.jsonl", {equal, other});
  const Outcome outcome = place.succeed(2, "inspect rollouts.jsonl");
  for (const std::string part :
       {"groups     2 (1 without signal", "masked     1 tokens", "1 responses cut off",
        "token ids  up to 9", "rewards    0 to 1, mean 0.75"})
    EXPECT_THAT(outcome.out, HasSubstr(part));
}

TEST(Inspect, WhatIsNeitherFolderNorRolloutsIsRefused) {
  const Workplace place;
  const std::string weights = golden_folder("hybrid") + "/model/model.safetensors";
  for (const std::string& path : {weights, std::string("/dev/zero"), std::string("''")}) {
    const Outcome outcome = place.run(2, "inspect " + path);
    EXPECT_NE(outcome.status, 0);
    EXPECT_LT(outcome.seconds, 30);
    ASSERT_EQ(outcome.errors().size(), 1u) << outcome.all();
  }
}

TEST(Inspect, DamagedFilesAreRefused) {
  Workplace place;
  place.copy_model("hybrid", "model");
  write_file(place / "model/model.safetensors", "cut");
  write_file(place / "rollouts.jsonl", "{");
  for (const std::string path : {"model", "rollouts.jsonl"}) {
    const Outcome outcome = place.run(2, "inspect " + path);
    EXPECT_EQ(outcome.status, 1) << path;
    ASSERT_EQ(outcome.errors().size(), 1u) << outcome.all();
    EXPECT_THAT(outcome.errors()[0], HasSubstr(path));
  }
}

}  // namespace
}  // namespace longstraw::program
