// What a run computes does not depend on how many ranks, blocks and pages it is spread over, nor on
// what else is in the file (trials 6 to 9, 12, 13, 41, 42).
#include "reference/golden.hpp"
#include "regression/program.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

namespace longstraw::program {
namespace {

constexpr int vocab = 64;  // of the golden case
// Float64 sums in another order: the stated bound for gradients of other rank counts, and for
// log-probabilities of size 10 some hundred roundings.
constexpr double same_gradient = 1e-10, same_logprob = 1e-12;

class Ranks : public testing::Test {
 protected:
  Ranks() { place.write_deck("deck.ini", golden_folder("hybrid") + "/model", "rollouts.jsonl"); }

  // One step in float64 that writes its gradient; returns the line of its history.
  Json step(const std::string& folder, int ranks, const std::string& more = "") {
    place.succeed(ranks, "run -i deck.ini -d " + folder +
                             " model.precision=float64 output.gradients=true " + more);
    return history_of(place / folder).at(0);
  }
  std::map<std::string, std::vector<double>> score(const std::string& file, int ranks,
                                                   const std::string& more = "") {
    place.succeed(ranks, "score -i deck.ini -o " + file + " model.precision=float64 " + more);
    return scores_of(place / file);
  }
  // The same loss and gradient on `ranks` as on one, for the rollouts that are there.
  void expect_same_on(const std::vector<int>& ranks, const std::string& more = "") {
    const Json one = step("on-1", 1, more);
    EXPECT_GT(one["grad_norm"], 0);
    for (const int n : ranks) {
      SCOPED_TRACE(str("{} ranks", n));
      const Json line = step(str("on-{}", n), n, more);
      EXPECT_NEAR(line["loss"], one["loss"], same_gradient);
      EXPECT_NEAR(line["grad_norm"], one["grad_norm"],
                  same_gradient * one["grad_norm"].get<double>());
      expect_near(gradients_of(place / str("on-{}", n)), gradients_of(place / "on-1"),
                  same_gradient);
    }
  }

  Workplace place;
};

// A prompt with three responses, one of them of one token.
Json small_group(const std::string& id, int prompt, int model_vocab = vocab) {
  std::vector<Json> responses;
  for (const int tokens : {4, 1, 6})
    responses.push_back(response(str("{}{}", id, tokens), random_ids(tokens, model_vocab, tokens),
                                 tokens == 4 ? 1.0 : 0.0));
  return group(id, random_ids(prompt, model_vocab, 77), std::move(responses));
}

// The whole way, from files to files, against an independent implementation.
TEST_F(Ranks, StepAgreesWithTransformers) {
  const reference::Golden golden("hybrid");
  write_file(place / "rollouts.jsonl", read_file(golden.rollouts()));
  const std::string optimizer =
      "optimizer.lr=0.001 optimizer.beta2=0.95 optimizer.weight_decay=0.1 "
      "optimizer.max_grad_norm=0.5 parallel.block_tokens=64 parallel.page_tokens=32 ";
  for (const std::string mode : {"exact", "frozen"}) {
    const Json line = step(mode, 2, optimizer + "gradient.mode=" + mode);
    const std::string base = "objectives/plain/", at = base + mode + "/";
    EXPECT_NEAR(line["loss"], golden.scalar(base + "loss"), 1e-9);
    const double norm = golden.scalar(at + "grad_norm");
    EXPECT_NEAR(line["grad_norm"], norm, 1e-8 * norm);
    EXPECT_EQ(line["gradient_mode"], mode);
    Gradients should;
    for (const auto& name : golden.names(at + "grad"))
      should[name] = golden.array(at + "grad/" + name).values;
    expect_near(gradients_of(place / mode), should, 1e-8);
    if (!golden.has(at + "after_step")) continue;
    Safetensors weights = Safetensors::read(place / (mode + "/weights/model.safetensors"));
    for (const auto& name : golden.names(at + "after_step")) {
      const auto after = golden.array(at + "after_step/" + name).values;
      const float* written = weights.values(name);
      for (size_t i = 0; i < after.size(); ++i)  // to the float32 of the file
        ASSERT_NEAR(written[i], after[i], 1e-9 + 6e-8 * std::abs(after[i])) << name;
    }
  }
}

// Trial 6: the log-probability of a one-token response comes from the prompt's last token.
TEST_F(Ranks, OneTokenResponseHasItsReferenceValue) {
  const reference::Golden golden("hybrid");
  write_file(place / "rollouts.jsonl", read_file(golden.rollouts()));
  for (const int ranks : {1, 4}) {
    const auto scores = score(str("scored-{}.jsonl", ranks), ranks);
    for (const std::string id : {"g0r0", "g0r1", "g0r2"}) {
      const auto should = golden.array("objectives/plain/responses/" + id + "/logprobs").values;
      ASSERT_EQ(scores.at(id).size(), should.size());
      for (size_t i = 0; i < should.size(); ++i) EXPECT_NEAR(scores.at(id)[i], should[i], 1e-9);
    }
    EXPECT_EQ(scores.at("g0r1").size(), 1u);
  }
}

// Trial 7: whichever rank owns the prompt's last token.
TEST_F(Ranks, FirstResponseTokenDoesNotDependOnTheOwnerOfTheLastPromptToken) {
  place.write_rollouts("rollouts.jsonl", {small_group("g", 5)});
  const auto one = score("1.jsonl", 1);
  for (const int ranks : {2, 4})
    for (const auto& [id, values] : score(str("{}.jsonl", ranks), ranks))
      for (size_t i = 0; i < values.size(); ++i)
        EXPECT_NEAR(values[i], one.at(id)[i], same_logprob) << id << " on " << ranks << " ranks";
}

// Trials 8 and 13.
TEST_F(Ranks, PromptsThatRanksDoNotDivide) {
  place.write_rollouts("rollouts.jsonl", {small_group("g", 7)});
  expect_same_on({2, 3, 5});
}
TEST_F(Ranks, LongPromptThatRanksDoNotDivide) {
  place.write_deck("deck.ini", LONGSTRAW_SOURCE_DIR "/input/recall/model", "rollouts.jsonl");
  Json one = small_group("g", 8423, 128);
  one["responses"].erase(2);
  place.write_rollouts("rollouts.jsonl", {one});
  expect_same_on({2}, "gradient.mode=frozen");
}

// Trial 9: ranks without a token take part in everything.
TEST_F(Ranks, PromptsShorterThanRanks) {
  for (const int prompt : {3, 1}) {
    place.write_rollouts("rollouts.jsonl", {small_group("g", prompt)});
    SCOPED_TRACE(str("prompt of {}", prompt));
    expect_same_on({8});
    for (const std::string folder : {"on-1", "on-8"}) std::filesystem::remove_all(place / folder);
  }
}

// Trial 41: nothing is padded, so blocks and pages of any size give the same in every mode.
TEST_F(Ranks, ShortAndLongResponseTogether) {
  Json both = group("g", random_ids(9, vocab, 1),
                    {response("short", random_ids(3, vocab, 2), 1),
                     response("long", random_ids(300, vocab, 3), 0)});
  place.write_rollouts("rollouts.jsonl", {both});
  int run = 0;
  for (const std::string mode : {"token-mean", "seq-mean-token-sum", "seq-mean-token-mean",
                                 "seq-mean-token-sum-norm objective.loss_scale_factor=300"}) {
    const std::string more = "objective.loss_agg_mode=" + mode;
    const std::string first = str("run-{}", run++), second = str("run-{}", run++);
    const Json a = step(first, 1, more + " parallel.block_tokens=2048");
    const Json b = step(second, 2, more + " parallel.block_tokens=64 parallel.page_tokens=7");
    EXPECT_NEAR(a["loss"], b["loss"], same_gradient) << mode;
    expect_near(gradients_of(place / second), gradients_of(place / first), same_gradient);
  }
}

// Trial 42: a group's responses one a group, all in one step, are the same step.
TEST_F(Ranks, OneGroupIsTheSameStepAsItsResponsesOneByOne) {
  Json together = small_group("g", 12);
  std::vector<Json> apart;
  const double advantages[] = {1.5, -0.75, 0.25};
  for (size_t i = 0; i < 3; ++i) {
    together["responses"][i]["advantage"] = advantages[i];
    apart.push_back(group(str("g{}", i), together["prompt"], {together["responses"][i]}));
  }
  for (const std::string mode : {"token-mean", "seq-mean-token-mean"}) {
    const std::string more = "objective.advantages=given objective.loss_agg_mode=" + mode;
    place.write_rollouts("rollouts.jsonl", {together});
    const Json one = step(mode + "-one", 1, more);
    place.write_rollouts("rollouts.jsonl", apart);
    const Json three = step(mode + "-three", 4, more + " rollouts.groups_per_step=3");
    EXPECT_NEAR(one["loss"], three["loss"], same_gradient);
    EXPECT_NEAR(one["grad_norm"], three["grad_norm"],
                same_gradient * one["grad_norm"].get<double>());
    expect_near(gradients_of(place / (mode + "-three")), gradients_of(place / (mode + "-one")),
                same_gradient);
  }
}

// Trial 42: denominators are those of the whole step, so a step of two groups is the mean of the
// two steps of one, weighted by tokens or by responses.
TEST_F(Ranks, StepOfTwoGroupsIsTheMeanOfTwoSteps) {
  Json first = small_group("a", 12), second = small_group("b", 20);
  second["responses"].erase(1);  // 10 of 21 tokens, 2 of 5 responses
  place.write_rollouts("rollouts.jsonl", {first, second});
  const std::map<std::string, double> share_of_second = {{"token-mean", 10.0 / 21},
                                                         {"seq-mean-token-sum", 2.0 / 5}};
  for (const auto& [mode, share] : share_of_second) {
    const std::string more = "optimizer.lr=0 objective.loss_agg_mode=" + mode;
    step(mode + "-1", 1, more);
    step(mode + "-2", 2, more + " rollouts.groups_per_step=2");
    Gradients should = gradients_of(place / (mode + "-1"), 0);
    for (const auto& [name, values] : gradients_of(place / (mode + "-1"), 1))
      for (size_t i = 0; i < values.size(); ++i)
        should[name][i] = (1 - share) * should[name][i] + share * values[i];
    expect_near(gradients_of(place / (mode + "-2")), should, same_gradient);
  }
}

// Trial 12: each response starts from the prompt's state, whatever ran before it.
TEST_F(Ranks, ResponsesDoNotSeeEachOther) {
  const Json one = small_group("g", 40);
  const std::string first = one["responses"][0]["id"];
  place.write_rollouts("rollouts.jsonl", {one});
  for (const int ranks : {1, 3}) {
    const auto before = score(str("before-{}", ranks), ranks);
    Json turned = one;
    std::reverse(turned["responses"].begin(), turned["responses"].end());
    place.write_rollouts("turned.jsonl", {turned});
    EXPECT_EQ(score(str("turned-{}", ranks), ranks, "rollouts.file=turned.jsonl"), before);
    Json changed = one;
    changed["responses"][1]["ids"] = random_ids(9, vocab, 5);
    place.write_rollouts("changed.jsonl", {changed});
    const auto after = score(str("changed-{}", ranks), ranks, "rollouts.file=changed.jsonl");
    EXPECT_EQ(after.at(first), before.at(first));
    EXPECT_EQ(after.at("g6"), before.at("g6"));
    EXPECT_NE(after.at("g1"), before.at("g1"));
  }
}

}  // namespace
}  // namespace longstraw::program
