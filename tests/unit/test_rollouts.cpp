#include "longstraw/policy/rollouts.hpp"

#include "longstraw/policy/non_numbers.hpp"
#include "longstraw/policy/rollout_lines.hpp"
#include "reference/golden.hpp"
#include "support/errors.hpp"
#include "support/temporary_folder.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

namespace longstraw {
namespace {

using support::expect_parts;
using support::Refusal;
using support::refusal_of;

Rollouts loaded(const std::string& path, OnBadSample on_bad_sample = OnBadSample::stop) {
  LineReader reader(path);
  return load_rollouts(reader, on_bad_sample, Grid::world());
}

class RolloutsFile : public testing::Test {
 protected:
  Rollouts load(const std::string& text, OnBadSample on_bad_sample = OnBadSample::stop) {
    support::put(path_, text);
    return loaded(path_, on_bad_sample);
  }
  Refusal refusal(const std::string& text, OnBadSample on_bad_sample = OnBadSample::stop) {
    return refusal_of([&] { load(text, on_bad_sample); });
  }
  // A group with one good response g0a and one, g0b, made of `members`.
  static std::string with(const std::string& members) {
    return R"({"id": "g0", "prompt": [1, 2], "responses": [{"id": "g0a", "ids": [1, 2],)"
           R"( "reward": 1}, {"id": "g0b", )" +
           members + "}]}\n";
  }

  support::TemporaryFolder folder_;
  std::string path_ = folder_ / "r.jsonl";
};

TEST_F(RolloutsFile, ReadsEveryField) {
  const auto rollouts =
      load(R"({"id": 7, "prompt": [5, 6, 7], "note": "kept elsewhere", "responses": [)"
           R"({"id": "a", "ids": [1, 2147483647], "reward": -0.5, "logprobs": [-0.25, 0],)"
           R"( "ref_logprobs": [-1, -2e-3], "loss_mask": [0, 1], "advantage": 2,)"
           R"( "finish_reason": "stop"},)"
           R"( {"id": "b", "ids": [3], "reward": 1, "logprobs": null, "finish_reason": null}]})"
           "\n\n" +
           with(R"("ids": [1], "reward": 0)"));
  ASSERT_EQ(rollouts.groups.size(), 2u);
  const Group& group = rollouts.groups[0];
  EXPECT_EQ(group.id, "7");
  EXPECT_EQ(group.line, 1);
  EXPECT_EQ(rollouts.groups[1].line, 3);
  EXPECT_EQ(group.prompt.ids({0, 3}), (std::vector<int32_t>{5, 6, 7}));
  const Response& a = group.responses.at(0);
  EXPECT_EQ(a.ids, (std::vector<int32_t>{1, 2147483647}));
  EXPECT_EQ(a.reward, -0.5);
  EXPECT_EQ(a.logprobs, (std::vector<double>{-0.25, 0}));
  EXPECT_EQ(a.ref_logprobs, (std::vector<double>{-1, -2e-3}));
  EXPECT_EQ(a.loss_mask, (std::vector<uint8_t>{0, 1}));
  EXPECT_EQ(a.advantage, 2.0);
  EXPECT_EQ(a.finish_reason, "stop");
  const Response& b = group.responses.at(1);
  EXPECT_TRUE(b.logprobs.empty() && b.loss_mask.empty() && b.finish_reason.empty());
  EXPECT_FALSE(b.advantage.has_value());
}

TEST_F(RolloutsFile, FaultsOfAResponseAreNamed) {
  const std::vector<std::pair<std::string, std::string>> faults = {
      // Trial 14.
      {R"("ids": [1], "reward": NaN)", "reward is \"NaN\""},
      {R"("ids": [1], "reward": Infinity)", "reward is \"Infinity\""},
      {R"("ids": [1], "reward": -Infinity)", "reward is \"-Infinity\""},
      {R"("ids": [1], "reward": 1e999)", "reward is \"1e999\""},
      {R"("ids": [1], "reward": -0.1e+400)", "reward is \"-0.1e+400\""},
      {R"("ids": [1])", "reward is missing"},
      {R"("ids": [1], "reward": null)", "reward is missing"},
      {R"("ids": [1], "reward": "0.5")", "reward is \"0.5\""},
      {R"("ids": [1], "reward": true)", "reward is true"},
      // Trial 18.
      {R"("ids": [1, -1], "reward": 1)", "ids[1] is -1"},
      {R"("ids": [1, 2.0], "reward": 1)", "ids[1] is 2.0"},
      {R"("ids": [2147483648], "reward": 1)", "ids[0] is 2147483648"},
      {R"("ids": [99999999999999999999999], "reward": 1)", "ids[0] is"},
      {R"("ids": ["a"], "reward": 1)", "ids[0] is \"a\""},
      {R"("ids": [[1]], "reward": 1)", "ids[0] is a list"},
      {R"("ids": [], "reward": 1)", "ids is empty"},
      {R"("ids": 3, "reward": 1)", "ids is 3"},
      {R"("reward": 1)", "ids is missing"},
      {R"("ids": [1, 2], "reward": 1, "logprobs": [-1])", "logprobs has 1 values for 2 ids"},
      {R"("ids": [1], "reward": 1, "ref_logprobs": [-1, -1])", "ref_logprobs has 2"},
      {R"("ids": [1], "reward": 1, "logprobs": [0.1])", "logprobs[0] is 0.1"},
      {R"("ids": [1, 1], "reward": 1, "logprobs": [-1, NaN])", "logprobs[1] is \"NaN\""},
      {R"("ids": [1, 1], "reward": 1, "logprobs": [-1, -1e999])", "logprobs[1] is \"-1e999\""},
      {R"("ids": [1, 1], "reward": 1, "ref_logprobs": [-1, null])", "ref_logprobs[1] is null"},
      {R"("ids": [1, 1], "reward": 1, "loss_mask": [1])", "loss_mask has 1"},
      {R"("ids": [1, 1], "reward": 1, "loss_mask": [1, 2])", "loss_mask[1] is 2"},
      {R"("ids": [1, 1], "reward": 1, "loss_mask": [1, true])", "loss_mask[1] is true"},
      {R"("ids": [1], "reward": 1, "advantage": "x")", "advantage is \"x\""},
      {R"("ids": [1], "reward": 1, "finish_reason": 3)", "finish_reason is 3"}};
  for (const auto& [members, part] : faults) {
    const auto stop = refusal(with(members));
    expect_parts(stop.message,
                 {path_ + " line 1", "group g0", "response g0b", part, "on_bad_sample"});
    EXPECT_EQ(stop.status, 1);
    const auto kept = load(with(members), OnBadSample::drop);
    EXPECT_EQ(kept.dropped_responses, 1) << members;
    EXPECT_EQ(kept.dropped_groups, 0);
    ASSERT_EQ(kept.groups.at(0).responses.size(), 1u);
    EXPECT_EQ(kept.groups[0].responses[0].id, "g0a");
  }
}

TEST_F(RolloutsFile, RoundingAboveZeroIsNoFault) {
  const auto rollouts = load(with(R"("ids": [1], "reward": 1, "logprobs": [1e-6])"));
  EXPECT_EQ(rollouts.groups[0].responses[1].logprobs[0], 1e-6);
}

TEST_F(RolloutsFile, FaultsOfALineAlwaysStop) {
  const std::string responses = R"("responses": [{"id": "a", "ids": [1], "reward": 1}])";
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  const std::vector<std::pair<std::string, std::string>> faults = {
      {R"({"id": "g0", "prompt": [1], )", "no valid JSON"},
      {"[1, 2]", "no group"},
      {R"({"prompt": [1], )" + responses + "}", "id is missing"},
      {R"({"id": "g0", )" + responses + "}", "prompt is missing"},
      {R"({"id": "g0", "prompt": [], )" + responses + "}", "prompt is empty"},
      {R"({"id": "g0", "prompt": [1, -5], )" + responses + "}", "prompt[1] is -5"},
      {R"({"id": "g0", "prompt": [1]})", "responses is missing"},
      {R"({"id": "g0", "prompt": [1], "responses": []})", "responses is"},
      {R"({"id": "", "prompt": [1], )" + responses + "}", "id is empty"},
      {R"({"id": "g0", "prompt": [1], "prompt": [2], )" + responses + "}",
       "key \"prompt\" is given"},
      {R"({"id": "g0", "prompt": [1], "x": )" + deep + ", " + responses + "}", "64 deep"},
      {R"({"id": "g0", "prompt": [1], "x": NaN, "y": )" + deep + ", " + responses + "}",
       "64 deep"}};
  for (const auto& [line, part] : faults)
    for (auto mode : {OnBadSample::stop, OnBadSample::drop})
      expect_parts(refusal("\n" + line + "\n", mode).message, {path_ + " line 2", part});
  expect_parts(refusal("").message, {path_, "no group"});
  expect_parts(refusal(" \n\n").message, {path_, "no group"});
  expect_parts(refusal_of([&] { loaded(folder_ / "none"); }).message,
               {folder_ / "none", "[rollouts] file"});
}

TEST_F(RolloutsFile, AGroupWithoutGoodResponsesIsDropped) {
  const std::string bad =
      R"({"id": "g1", "prompt": [1], "responses": [{"id": "x", "ids": [1], "reward": NaN}]})";
  const auto rollouts = load(bad + "\n" + with(R"("ids": [1], "reward": 0)"), OnBadSample::drop);
  EXPECT_EQ(rollouts.dropped_groups, 1);
  ASSERT_EQ(rollouts.groups.size(), 1u);
  EXPECT_EQ(rollouts.groups[0].id, "g0");
  expect_parts(refusal(bad, OnBadSample::drop).message, {"no response that can be used"});
}

// Trial 16.
TEST_F(RolloutsFile, DuplicatesAreRefused) {
  const auto line = [](const std::string& group, const std::string& prompt,
                       const std::string& response) {
    return R"({"id": ")" + group + R"(", "prompt": [)" + prompt + R"(], "responses": [{"id": ")" +
           response + R"(", "ids": [1], "reward": 1}]})" + "\n";
  };
  expect_parts(refusal(line("g", "1", "a") + line("g", "2", "b")).message,
               {"group g ", "lines 1 and 2", "different prompts"});
  expect_parts(refusal(line("g", "1", "a") + line("g", "1", "b")).message,
               {"group g ", "lines 1 and 2", "same prompt"});
  expect_parts(refusal(line("g", "1", "a") + line("h", "2", "a")).message,
               {"response a ", "lines 1 and 2"});
  expect_parts(
      refusal(with(R"("ids": [1], "reward": 1}, {"id": "g0a", "ids": [1], "reward": 1)")).message,
      {"response g0a ", "lines 1 and 1"});
  testing::internal::CaptureStderr();
  EXPECT_EQ(load(line("g", "1", "a") + line("h", "1", "b")).groups.size(), 2u);
  expect_parts(testing::internal::GetCapturedStderr(), {"g and h", "same prompt"});
}

// Trial 18.
TEST_F(RolloutsFile, IdsBeyondTheVocabularyAreNamed) {
  auto rollouts = load(with(R"("ids": [1, 9], "reward": 1)"));
  EXPECT_NO_THROW(check_token_ids(rollouts, 10, Grid::world()));
  expect_parts(
      refusal_of([&] { check_token_ids(rollouts, 9, Grid::world()); }).message,
      {path_ + " line 1", "group g0", "response g0b", "ids[1]", "token id 9", "vocabulary of 9"});
  rollouts.groups[0].prompt = {1, 50};
  expect_parts(refusal_of([&] { check_token_ids(rollouts, 10, Grid::world()); }).message,
               {"group g0: prompt[1]", "50"});
  rollouts.groups[0].prompt = {1, -1};
  expect_parts(refusal_of([&] { check_token_ids(rollouts, 10, Grid::world()); }).message,
               {"prompt[1]", "-1"});
}

TEST(RolloutLines, NonNumbersAreQuotedOutsideTextOnly) {
  EXPECT_EQ(with_quoted_non_numbers(R"({"NaN \" NaN": [NaN, -Infinity,Infinity], "x": "NaN"})"),
            R"({"NaN \" NaN": ["NaN", "-Infinity","Infinity"], "x": "NaN"})");
  EXPECT_EQ(with_quoted_non_numbers(R"({"1e999": [1e999,-2E+400, 1e-999, 0.00001e312, 1, -]})"),
            R"({"1e999": ["1e999","-2E+400", 1e-999, 0.00001e312, 1, -]})");
}

// Damaged lines are refused or read, never anything else.
TEST(RolloutLines, AnyDamageIsAnErrorOrNone) {
  const std::string good =
      R"({"id": "g", "prompt": [1, 20], "responses": [{"id": "a", "ids": [1, 2], "reward": -1.5e1,)"
      R"( "logprobs": [-0.5, -1], "loss_mask": [0, 1], "advantage": 1, "finish_reason": "stop"}]})";
  const std::string bytes = "\"{}[]:,-.0129eNaInfty\\ \x80\xff\n";
  std::mt19937 random(5);
  const auto below = [&](size_t limit) { return random() % limit; };
  int refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string text = good;
    for (size_t edits = 1 + below(3); edits > 0 && !text.empty(); --edits) {
      const size_t at = below(text.size());
      switch (below(4)) {
        case 0: text[at] = bytes[below(bytes.size())]; break;
        case 1: text.insert(at, 1, bytes[below(bytes.size())]); break;
        case 2: text.erase(at, 1 + below(8)); break;
        default: text.insert(at, text.substr(below(text.size()), below(30)));
      }
    }
    std::vector<std::string> faults;
    try {
      const Group group = parse_group(parse_line(text, {"f", 1}), faults);
      for (const auto& response : group.responses) EXPECT_TRUE(std::isfinite(response.reward));
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_LT(refused, 20'000);
}

// A prompt in memory and one that is read when it is asked for.
TEST(Prompts, AreTheSameFromMemoryAndFromAFile) {
  const std::vector<int32_t> file = {9, 8, 7, 6, 5, 4};
  int64_t most = 0;
  const Prompt read({1, 5}, [&](int64_t begin, std::span<int32_t> to) {
    most = std::max(most, std::ssize(to));
    std::copy_n(file.begin() + begin, to.size(), to.begin());
  });
  const Prompt held = {8, 7, 6, 5};
  for (const Prompt& prompt : {read, held}) {
    EXPECT_EQ(prompt.size(), 4);
    EXPECT_EQ(prompt.last(), 5);
    EXPECT_EQ(prompt.ids({1, 3}), (std::vector<int32_t>{7, 6}));
    EXPECT_TRUE(prompt.ids({4, 4}).empty());
  }
  EXPECT_EQ(most, 2);
  EXPECT_TRUE(read.held().empty());
}

TEST(Prompts, HashesTellThemApart) {
  const auto hashes = [](std::initializer_list<Prompt> prompts) {
    Rollouts rollouts;
    for (const Prompt& prompt : prompts) rollouts.groups.emplace_back().prompt = prompt;
    return prompt_hashes(rollouts, Grid::world());
  };
  const auto found = hashes({{1, 2}, {2, 1}, {1, 2, 0}, {0, 1, 2}, {1, 2}});
  EXPECT_EQ(found[0], found[4]);
  EXPECT_EQ(std::set(found.begin(), found.end()).size(), 4u);
}

TEST(RolloutSettings, AreReadFromTheDeck) {
  Deck deck("[rollouts]\nfile = a.jsonl\nepochs = 2\nshuffle = true\non_bad_sample = drop\n",
            "/d/a.ini");
  const auto settings = read_rollout_settings(deck);
  EXPECT_EQ(settings.file, "/d/a.jsonl");
  EXPECT_EQ(settings.groups_per_step, 1);
  EXPECT_EQ(settings.epochs, 2);
  EXPECT_TRUE(settings.shuffle);
  EXPECT_EQ(settings.on_bad_sample, OnBadSample::drop);
  EXPECT_NO_THROW(deck.check_all_read());
  Deck bad("[rollouts]\nfile = a\ngroups_per_step = 0\n", "a.ini");
  expect_parts(refusal_of([&] { read_rollout_settings(bad); }).message,
               {"groups_per_step", "at least 1"});
}

TEST(Rollouts, GoldenCasesLoad) {
  const reference::Golden golden("hybrid_tied_bf16");
  const auto rollouts = loaded(golden.rollouts());
  ASSERT_EQ(rollouts.groups.size(), 2u);
  EXPECT_EQ(rollouts.groups[0].prompt.size(), 97);
  EXPECT_EQ(rollouts.groups[1].responses[1].ids.size(), 9u);
}

}  // namespace
}  // namespace longstraw
