// What a step makes of rewards, given log-probabilities, masks and references, by hand (trials 1 to
// 4, 37, 38, 40, 43, 44, 46).
#include "regression/program.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

namespace longstraw::program {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr int vocab = 64;  // of the golden case
// Float64 values of order 1 out of some hundred operations.
constexpr double rounding = 1e-12;

// Log-probabilities so far below what the program will compute that the ratio is exp(shift).
void give(Json& groups_response, const std::vector<double>& logprobs, double shift,
          const char* key = "logprobs") {
  std::vector<double> given;
  for (const double value : logprobs) given.push_back(value - shift);
  groups_response[key] = given;
}

class Objectives : public testing::Test {
 protected:
  Objectives() {
    place.write_deck("deck.ini", golden_folder("hybrid") + "/model", "rollouts.jsonl");
    std::vector<Json> responses;
    for (const int tokens : {1, 10, 100})
      responses.push_back(response(str("r{}", tokens), random_ids(tokens, vocab, tokens),
                                   tokens == 10 ? 1.0 : 0.0));
    one = group("g", random_ids(30, vocab, 3), std::move(responses));
  }

  // The group with `advantages`, and given log-probabilities at these ratios.
  void write_with(const std::vector<double>& advantages, const std::vector<double>& ratios) {
    place.write_rollouts("rollouts.jsonl", {one});
    std::filesystem::remove(place / "scored.jsonl");
    place.succeed(2, "score -i deck.ini -o scored.jsonl model.precision=float64");
    const auto scores = scores_of(place / "scored.jsonl");
    for (size_t i = 0; i < one["responses"].size(); ++i) {
      Json& r = one["responses"][i];
      r["advantage"] = advantages.at(i);
      give(r, scores.at(r["id"]), std::log(ratios.at(i)));
    }
    place.write_rollouts("rollouts.jsonl", {one});
  }
  // One step in float64, in a new folder; the line of its history.
  Json step(const std::string& more, int ranks = 2) {
    folder = str("run-{}", runs++);
    last =
        place.succeed(ranks, "run -i deck.ini -d " + folder + " model.precision=float64 " + more);
    return history_of(place / folder).at(0);
  }
  bool weights_changed() const {
    return files_of(place / folder + "/weights").at("model.safetensors") !=
           read_file(golden_folder("hybrid") + "/model/model.safetensors");
  }

  Workplace place;
  Json one;
  int runs = 0;
  std::string folder;
  Outcome last;
};

// Trials 1 and 3.
TEST_F(Objectives, AGroupWithoutSignalLeavesTheWeightsAsTheyAre) {
  Json single = one;
  single["responses"].erase(1), single["responses"].erase(1);
  Json equal = one;
  for (Json& r : equal["responses"]) r["reward"] = 0.1;
  for (const Json& group : {equal, single}) {
    place.write_rollouts("rollouts.jsonl", {group});
    const Json line = step("optimizer.lr=0.1");
    for (const char* key : {"loss", "pg_loss", "grad_norm", "advantage_mean"})
      EXPECT_EQ(line[key], 0.0) << key;
    EXPECT_EQ(line["zero_std_groups"], 1);
    EXPECT_EQ(line["outcome"], "skipped: no signal");
    EXPECT_THAT(last.err, HasSubstr("warning: step 1"));
    EXPECT_FALSE(weights_changed());
  }
}

// Trial 1: the term that is left acts.
TEST_F(Objectives, AGroupWithoutSignalStillFeelsItsReference) {
  for (Json& r : one["responses"])
    r["reward"] = 1, r["ref_logprobs"] = std::vector<double>(r["ids"].size(), -1.0);
  place.write_rollouts("rollouts.jsonl", {one});
  const Json line = step("optimizer.lr=0.1 objective.kl_loss_coef=0.1");
  EXPECT_EQ(line["pg_loss"], 0.0);
  EXPECT_GT(line["kl_loss"], 0.0);
  EXPECT_EQ(line["zero_std_groups"], 1);
  EXPECT_EQ(line["outcome"], "updated");
  EXPECT_TRUE(weights_changed());
}

// Trial 4: steps without signal leave no trace in the optimizer.
TEST_F(Objectives, SkippedStepsLeaveTheOptimizerAsItIs) {
  std::vector<Json> groups;
  for (const std::string id : {"a", "b", "c", "d"}) {
    Json copy = one;
    copy["id"] = id;
    copy["prompt"] = random_ids(20, vocab, static_cast<unsigned>(id[0]));
    for (Json& r : copy["responses"]) {
      r["id"] = id + r["id"].get<std::string>();
      if (id < "d") r["reward"] = 1.0;
    }
    groups.push_back(copy);
  }
  place.write_rollouts("rollouts.jsonl", groups);
  step("optimizer.lr=0.1");
  const auto lines = history_of(place / folder);
  ASSERT_EQ(lines.size(), 4u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(lines[i]["outcome"], "skipped: no signal");
  EXPECT_EQ(lines[3]["outcome"], "updated");
  const auto after = files_of(place / folder + "/weights");
  place.write_rollouts("rollouts.jsonl", {groups[3]});
  step("optimizer.lr=0.1");
  // Which tells of one step, not four; of updates there was one in both.
  EXPECT_THAT(differences(files_of(place / folder + "/weights"), after),
              testing::ElementsAre("longstraw.json"));
  for (const std::string& origin :
       {after.at("longstraw.json"), read_file(place / folder + "/weights/longstraw.json")})
    EXPECT_EQ(Json::parse(origin)["updates"], 1);
}

// Trial 2.
TEST_F(Objectives, NearlyEqualRewardsDoNotExplode) {
  Json nearly = one, far = one;
  for (size_t i = 0; i < 3; ++i) {
    nearly["responses"][i]["reward"] = i == 1 ? 1 + 1e-7 : 1.0;
    far["responses"][i]["reward"] = i == 1 ? 2.0 : 1.0;
  }
  std::map<std::string, double> norms;
  for (const bool is_near : {true, false})
    for (const std::string by_std : {"true", "false"}) {
      place.write_rollouts("rollouts.jsonl", {is_near ? nearly : far});
      const Json line = step("objective.norm_adv_by_std=" + by_std);
      EXPECT_EQ(line["zero_std_groups"], 0);
      norms[(is_near ? "nearly " : "far ") + by_std] = line["grad_norm"];
    }
  // Advantages are rewards less their mean: 1e-7 of the others; the reward itself holds 9 digits.
  EXPECT_NEAR(norms["nearly false"] / norms["far false"], 1e-7, 1e-7 * 1e-8);
  // Divided by (std + 1e-6): std is sqrt(1/3) of the difference.
  const double std = std::sqrt(1.0 / 3);
  EXPECT_NEAR(norms["nearly true"] / norms["far true"], 1e-7 / (1e-7 * std + 1e-6) * (std + 1e-6),
              1e-8);
}

// Trial 37, in the precision that people use.
TEST_F(Objectives, OwnLogprobsPutBackGiveARatioOfOne) {
  place.write_rollouts("rollouts.jsonl", {one});
  place.succeed(2, "score -i deck.ini -o once.jsonl");
  place.succeed(2, "score -i deck.ini -o twice.jsonl --as reference rollouts.file=once.jsonl");
  place.succeed(2,
                "run -i deck.ini -d out rollouts.file=twice.jsonl objective.old_logprobs=given "
                "objective.kl_loss_coef=0.1");
  const Json line = history_of(place / "out").at(0);
  EXPECT_NEAR(line["ratio_mean"], 1.0, 1e-6);
  EXPECT_NEAR(line["ratio_max"], 1.0, 1e-6);
  EXPECT_NEAR(line["kl_loss"], 0.0, 1e-6);
  EXPECT_EQ(line["clip_fraction_low"], 0.0);
  EXPECT_EQ(line["clip_fraction_high"], 0.0);
}

// Trial 43: every token at ratio 1.1, advantages 1, -2 and 3 for 1, 10 and 100 tokens.
TEST_F(Objectives, AggregationByHand) {
  write_with({1, -2, 3}, {1.1, 1.1, 1.1});
  const std::map<std::string, double> sums = {
      {"token-mean", (1.0 - 2 * 10 + 3 * 100) / 111},
      {"seq-mean-token-sum", (1.0 - 2 * 10 + 3 * 100) / 3},
      {"seq-mean-token-mean", (1.0 - 2 + 3) / 3},
      {"seq-mean-token-sum-norm objective.loss_scale_factor=50", (1.0 - 2 * 10 + 3 * 100) / 150}};
  for (const auto& [mode, sum] : sums) {
    const Json line = step(
        "objective.old_logprobs=given objective.advantages=given "
        "objective.loss_agg_mode=" +
        mode);
    EXPECT_NEAR(line["loss"], -1.1 * sum, rounding * 400) << mode;
    EXPECT_NEAR(line["ratio_mean"], 1.1, rounding);
    EXPECT_EQ(line["response_tokens"], 111);
    EXPECT_EQ(line["prompt_tokens"], 30);
  }
}

// Trial 46: cut-off responses are left out of loss and denominators when the deck says so, and by
// loss_mask token by token.
TEST_F(Objectives, MaskedTokensAreInNoDenominator) {
  write_with({1, -2, 3}, {1.1, 1.1, 1.1});
  one["responses"][2]["finish_reason"] = "length";
  place.write_rollouts("rollouts.jsonl", {one});
  const std::string given = "objective.old_logprobs=given objective.advantages=given ";
  Json line = step(given + "objective.mask_truncated=true");
  EXPECT_NEAR(line["loss"], -1.1 * (1.0 - 2 * 10) / 11, rounding * 400);
  EXPECT_EQ(line["masked_responses"], 1);
  EXPECT_EQ(line["counted_tokens"], 11);
  EXPECT_EQ(line["response_tokens"], 111);
  line = step(given);
  EXPECT_NEAR(line["loss"], -1.1 * (1.0 - 2 * 10 + 3 * 100) / 111, rounding * 400);
  EXPECT_EQ(line["masked_responses"], 0);

  std::vector<int> mask(10, 0);
  mask[3] = mask[9] = 1;
  one["responses"][1]["loss_mask"] = mask;
  place.write_rollouts("rollouts.jsonl", {one});
  line = step(given + "objective.mask_truncated=true objective.loss_agg_mode=seq-mean-token-mean");
  EXPECT_NEAR(line["loss"], -1.1 * (1.0 - 2) / 2, rounding * 400);
  EXPECT_EQ(line["counted_tokens"], 3);
}

// Trial 46: with nothing left to count, nothing moves.
TEST_F(Objectives, AStepOfMaskedResponsesIsSkipped) {
  for (Json& r : one["responses"]) r["finish_reason"] = "length";
  place.write_rollouts("rollouts.jsonl", {one});
  const Json line = step("objective.mask_truncated=true");
  EXPECT_EQ(line["outcome"], "skipped: no signal");
  EXPECT_EQ(line["loss"], 0.0);
  EXPECT_EQ(line["counted_tokens"], 0);
  EXPECT_EQ(line["masked_responses"], 3);
  EXPECT_FALSE(weights_changed());
}

// Trial 40: where the ratio is clipped there is no gradient.
TEST_F(Objectives, ClippedRatiosByHand) {
  struct Case {
    double advantage, ratio, loss;
    const char* clipped;  // the history's column that is 1; empty: none, and there is a gradient
  };
  const Case cases[] = {{2, 1.5, -2 * 1.28, "clip_fraction_high"},
                        {2, 0.5, -2 * 0.5, ""},
                        {-2, 0.5, 2 * 0.8, "clip_fraction_low"},
                        {-2, 1.5, 2 * 1.5, ""},
                        {-2, 4.0, 2 * 3.0, "dual_clip_fraction"}};
  for (const Case& c : cases) {
    write_with({c.advantage, c.advantage, c.advantage}, {c.ratio, c.ratio, c.ratio});
    const Json line = step(
        "objective.old_logprobs=given objective.advantages=given "
        "objective.clip_ratio_low=0.2 objective.clip_ratio_high=0.28 "
        "objective.clip_ratio_c=3");
    SCOPED_TRACE(line.dump());
    EXPECT_NEAR(line["loss"], c.loss, rounding * 10);
    EXPECT_NEAR(line["ratio_max"], c.ratio, rounding * 10);
    for (const char* column : {"clip_fraction_low", "clip_fraction_high", "dual_clip_fraction"})
      EXPECT_EQ(line[column], std::string(column) == c.clipped ? 1.0 : 0.0) << column;
    if (*c.clipped == 0)
      EXPECT_GT(line["grad_norm"], 0.0);
    else
      EXPECT_EQ(line["grad_norm"], 0.0);
  }
}

// Trial 38: the engine's log-probabilities are off; the weight of a token is capped, and counted.
TEST_F(Objectives, ImportanceOfForeignLogprobsIsCapped) {
  write_with({1, 1, 1}, {std::exp(0.1), 1, 1});
  const std::string tis = "objective.advantages=given objective.tis_imp_ratio_cap=1.05 ";
  Json line = step(tis);
  EXPECT_NEAR(line["tis_capped_fraction"], 1.0 / 111, rounding);
  EXPECT_NEAR(line["loss"], -(1.05 + 110) / 111, rounding);
  EXPECT_NEAR(line["ratio_mean"], 1.0, rounding);
  // Far off: no overflow, neither as importance nor as ratio.
  for (Json& r : one["responses"]) r["logprobs"] = std::vector<double>(r["ids"].size(), -5000.0);
  place.write_rollouts("rollouts.jsonl", {one});
  line = step(tis);
  EXPECT_NEAR(line["tis_capped_fraction"], 1.0, rounding);
  EXPECT_NEAR(line["loss"], -1.05, rounding);
  line = step("objective.advantages=given objective.old_logprobs=given");
  EXPECT_TRUE(line["loss"].is_number() && line["grad_norm"].is_number());
  EXPECT_NEAR(line["ratio_max"], std::exp(20.0), std::exp(20.0) * rounding);
  EXPECT_EQ(line["clip_fraction_high"], 1.0);
}

// Trial 44.
TEST_F(Objectives, KlByHand) {
  write_with({0, 0, 0}, {1, 1, 1});
  const auto scores = scores_of(place / "scored.jsonl");
  const double d = -0.3;  // reference less policy
  const std::map<std::string, double> shifted = {
      {"k1", -d}, {"k2", d * d / 2}, {"k3", std::exp(d) - d - 1}};
  for (const auto& [type, value] : shifted)
    for (const bool equal : {true, false}) {
      for (Json& r : one["responses"]) give(r, scores.at(r["id"]), equal ? 0 : -d, "ref_logprobs");
      place.write_rollouts("rollouts.jsonl", {one});
      const Json line = step(
          "objective.advantages=given objective.kl_loss_coef=0.5 "
          "objective.kl_loss_type=" +
          type);
      EXPECT_NEAR(line["kl_loss"], equal ? 0 : value, rounding) << type;
      EXPECT_NEAR(line["loss"], equal ? 0 : 0.5 * value, rounding) << type;
      EXPECT_EQ(line["pg_loss"], 0.0);
    }
}

// Trial 44: the more it weighs, the less the policy drifts from the reference. Steps small enough
// that AdamW, which gives every step the same length, does not leap over it.
TEST_F(Objectives, MoreKlMeansLessDrift) {
  place.write_rollouts("rollouts.jsonl", {one});
  place.succeed(2, "score -i deck.ini -o reference.jsonl --as reference");
  std::vector<double> drifts;
  for (const std::string beta : {"0.001", "0.1", "10"}) {
    const std::string to = "run-" + beta;
    place.succeed(2, "run -i deck.ini -d " + to +
                         " rollouts.file=reference.jsonl rollouts.epochs=8 optimizer.lr=1e-4 "
                         "objective.kl_loss_coef=" +
                         beta);
    const auto lines = history_of(place / to);
    ASSERT_EQ(lines.size(), 8u);
    for (const Json& line : lines) EXPECT_GE(line["kl_loss"], 0.0);
    drifts.push_back(lines.back()["kl_loss"]);
  }
  EXPECT_GT(drifts[0], 1.5 * drifts[1]);
  EXPECT_GT(drifts[1], 1.5 * drifts[2]);
}

}  // namespace
}  // namespace longstraw::program
