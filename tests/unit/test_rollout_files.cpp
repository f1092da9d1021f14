// Rollouts as HDF5 beside JSON lines: the same groups, there and back, and what is refused.
#include "longstraw/sim/rollout_files.hpp"

#include "longstraw/io/lists.hpp"
#include "longstraw/policy/rollout_lines.hpp"
#include "longstraw/sim/rollout_hdf5.hpp"
#include "support/errors.hpp"
#include "support/temporary_folder.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <random>
#include <thread>

namespace longstraw {
namespace {

using json = nlohmann::ordered_json;
using support::expect_parts;
using support::refusal_of;

class RolloutFiles : public testing::Test {
 protected:
  static Rollouts opened(const std::string& path, OnBadSample bad = OnBadSample::stop) {
    return open_rollouts(path, bad, Grid::world());
  }
  static void convert(const std::string& from, const std::string& to) {
    longstraw::convert(from, to, Grid::world());
  }
  // The file that `text` becomes.
  std::string hdf5(const std::string& text) const {
    std::error_code ignored;
    std::filesystem::remove(hdf5_, ignored);
    support::put(lines_, text);
    convert(lines_, hdf5_);
    return hdf5_;
  }
  std::string refusal(OnBadSample bad = OnBadSample::stop) const {
    return refusal_of([&] { opened(hdf5_, bad); }).message;
  }
  // Replaces a dataset of the file.
  template <class T>
  void replace(const std::string& path, const std::vector<T>& values) const {
    remove(path);
    const h5::File file(H5Fopen(hdf5_.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), hdf5_);
    FlatWriter<T> writer(file, path, {"replaced"});
    writer.append(values);
    writer.finish();
  }
  void remove(const std::string& path) const {
    const h5::File file(H5Fopen(hdf5_.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), hdf5_);
    h5::check_h5(H5Ldelete(file, path.c_str(), H5P_DEFAULT), path);
  }
  template <class Change>
  void change_attribute(const Change& change) const {
    const h5::File file(H5Fopen(hdf5_.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), hdf5_);
    h5::check_h5(H5Adelete(file, "format"), "format");
    change(file);
  }

  support::TemporaryFolder folder_;
  std::string lines_ = folder_ / "a.jsonl", hdf5_ = folder_ / "a.h5";
};

// Every member in every form that lines may have.
const std::string all_forms =
    R"({"z": {"deep": [1.5, null], "é": "\u0000"}, "id": 7, "prompt": [5, 6, 7], "responses": [)"
    R"({"id": "a", "ids": [1, 2147483647], "reward": 0.1, "logprobs": [-0.25, 0],)"
    R"( "ref_logprobs": [-1, -4.9e-324], "loss_mask": [0, 1.0], "advantage": 2,)"
    R"( "finish_reason": "stop", "text": "\"\\\n"},)"
    R"( {"ids": [3], "id": 8, "reward": 1, "logprobs": null, "finish_reason": null},)"
    R"( {"id": "c", "ids": [3, 4], "reward": -1e300, "finish_reason": "", "advantage": -0.5,)"
    R"( "loss_mask": null, "ref_logprobs": [-0.3333333333333333, 1e-4]}]})"
    "\n \n"
    R"({"id": "é", "prompt": [6], "empty": {}, "responses": [)"
    R"({"id": "b", "ids": [1], "reward": 12345678901234}]})";

std::vector<json> lines_of(const std::string& path) {
  std::vector<json> lines;
  LineReader reader(path);
  while (auto group = reader.next()) {
    group->object["prompt"] = group->prompt.held();
    lines.push_back(group->object);
  }
  return lines;
}

// Equal as JSON values, in which the order of members means nothing.
void expect_equal(const std::vector<json>& a, const std::vector<json>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_EQ(nlohmann::json::parse(a[i].dump()), nlohmann::json::parse(b[i].dump()));
}

TEST_F(RolloutFiles, ThereAndBackIsLossless) {
  hdf5(all_forms);
  convert(hdf5_, folder_ / "b.jsonl");
  expect_equal(lines_of(folder_ / "b.jsonl"), lines_of(lines_));
  convert(folder_ / "b.jsonl", folder_ / "b.h5");
  convert(folder_ / "b.h5", folder_ / "c.jsonl");
  EXPECT_EQ(support::get(folder_ / "b.jsonl"), support::get(folder_ / "c.jsonl"));
}

TEST_F(RolloutFiles, BothKindsLoadAlike) {
  const Rollouts h = opened(hdf5(all_forms)), l = opened(lines_);
  ASSERT_EQ(h.groups.size(), l.groups.size());
  for (size_t g = 0; g < h.groups.size(); ++g) {
    const Group &a = h.groups[g], &b = l.groups[g];
    EXPECT_EQ(a.id, b.id);
    EXPECT_EQ(a.prompt.ids({0, a.prompt.size()}), b.prompt.ids({0, b.prompt.size()}));
    EXPECT_TRUE(a.prompt.held().empty());
    ASSERT_EQ(a.responses.size(), b.responses.size());
    for (size_t r = 0; r < a.responses.size(); ++r) {
      const Response &x = a.responses[r], &y = b.responses[r];
      EXPECT_EQ(std::tie(x.id, x.ids, x.reward, x.logprobs, x.ref_logprobs, x.loss_mask,
                         x.advantage, x.finish_reason),
                std::tie(y.id, y.ids, y.reward, y.logprobs, y.ref_logprobs, y.loss_mask,
                         y.advantage, y.finish_reason));
    }
  }
  EXPECT_EQ(h.groups[1].line, 2);  // the number of the group
  EXPECT_EQ(prompt_hashes(h, Grid::world()), prompt_hashes(l, Grid::world()));
}

TEST_F(RolloutFiles, TheSameRolloutsAreTheSameFile) {
  const std::string first = support::get(hdf5(all_forms));
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  EXPECT_TRUE(support::get(hdf5(all_forms)) == first);
}

TEST_F(RolloutFiles, TheKindIsToldByContent) {
  hdf5(all_forms);
  std::filesystem::rename(hdf5_, folder_ / "named.jsonl");
  EXPECT_EQ(rollout_kind(folder_ / "named.jsonl"), RolloutKind::hdf5);
  EXPECT_EQ(opened(folder_ / "named.jsonl").groups.size(), 2u);
  std::filesystem::rename(lines_, folder_ / "named.h5");
  EXPECT_EQ(rollout_kind(folder_ / "named.h5"), RolloutKind::json_lines);
  EXPECT_EQ(rollout_kind(folder_ / "none"), RolloutKind::json_lines);
  EXPECT_EQ(rollout_kind(folder_.path()), RolloutKind::json_lines);
}

TEST_F(RolloutFiles, ScoresAreAddedAndTheRestIsCarriedThrough) {
  const std::string text =
      R"({"z": {"deep": [1.5, null]}, "id": 7, "prompt": [5], "responses": [)"
      R"({"id": "a", "ids": [1, 2],)"
      R"( "reward": 0.1, "mine": "é", "logprobs": [-9, -9]}, {"id": 8, "ids": [3], "reward": 1}]})"
      "\n\n"
      R"({"id": "h", "prompt": [6], "responses": [{"id": "b", "ids": [1], "reward": 1}]})"
      "\n";
  support::put(lines_, text);
  const std::string out = folder_ / "out.jsonl";
  const double third = -1.0 / 3, tiny = -4.9e-324;
  write_scored(lines_, out, "ref_logprobs", {{"a", {third, tiny}}, {"8", {-0.1}}});
  EXPECT_EQ(
      support::get(out),
      R"({"z":{"deep":[1.5,null]},"id":7,"prompt":[5],"responses":[{"id":"a","ids":[1,2],)"
      R"("reward":0.1,"mine":"é","logprobs":[-9,-9],"ref_logprobs":[-0.3333333333333333,-5e-324]},)"
      R"({"id":8,"ids":[3],"reward":1,"ref_logprobs":[-0.1]}]})"
      "\n"
      R"({"id":"h","prompt":[6],"responses":[{"id":"b","ids":[1],"reward":1}]})"
      "\n");
  const auto again = opened(out);
  EXPECT_EQ(again.groups[0].responses[0].ref_logprobs, (std::vector<double>{third, tiny}));
  write_scored(lines_, out, "logprobs", {{"a", {-1, -2}}});
  EXPECT_EQ(opened(out).groups[0].responses[0].logprobs, (std::vector<double>{-1, -2}));
  expect_parts(
      refusal_of([&] { write_scored(lines_, folder_ / "no/out", "logprobs", {}); }).message,
      {folder_ / "no/out"});
}

TEST_F(RolloutFiles, NonNumbersAreCarriedThroughAsTheyAre) {
  support::put(lines_, R"({"id":"g","value":NaN,"prompt":[5],"responses":[{"id":"a","ids":[1],)"
                       R"("reward":1,"t":"NaN \" NaN\u0001"},{"id":"b","ids":[1],"reward":1e999,)"
                       R"("m":[-Infinity,Infinity,0.5,"1e999"]}]})"
                       "\n");
  const std::string out = folder_ / "out.jsonl";
  EXPECT_EQ(opened(lines_, OnBadSample::drop).dropped_responses, 1);
  write_scored(lines_, out, "logprobs", {{"a", {-1}}});
  EXPECT_EQ(support::get(out),
            R"({"id":"g","value":NaN,"prompt":[5],"responses":[{"id":"a","ids":[1],"reward":1,)"
            R"("t":"NaN \" NaN\u0001","logprobs":[-1.0]},{"id":"b","ids":[1],"reward":1e999,)"
            R"("m":[-Infinity,Infinity,0.5,"1e999"]}]})"
            "\n");
}

// What the reader itself marks non-numbers with.
TEST_F(RolloutFiles, TextsThatLookLikeMarkedNonNumbersAreCarriedThrough) {
  const std::string text =
      R"({"id":"g","prompt":[5],"responses":[{"id":"\u0001a","ids":[1],"reward":1.0,)"
      R"("finish_reason":"\u0001","m":[NaN,"\u00011.5","x\"\u0001NaN","\u0001NaN\\"]}]})"
      "\n";
  support::put(lines_, text);
  write_scored(lines_, folder_ / "out.jsonl", "logprobs", {});
  EXPECT_EQ(support::get(folder_ / "out.jsonl"), text);
  hdf5(text);
  convert(hdf5_, folder_ / "b.jsonl");
  expect_equal(lines_of(folder_ / "b.jsonl"), lines_of(lines_));
}

TEST_F(RolloutFiles, NonNumbersOfUnknownMembersAreCarriedThroughHdf5) {
  const std::string text =
      R"({"id":"g","prompt":[5],"responses":[{"id":"a","ids":[1],"reward":1.0,"t":["NaN",NaN]},)"
      R"({"id":"b","ids":[1],"reward":0.5,"m":-1e999}],"value":-Infinity})"
      "\n";
  hdf5(text);
  write_scored(hdf5_, folder_ / "b.h5", "logprobs", {});
  convert(folder_ / "b.h5", folder_ / "b.jsonl");
  EXPECT_EQ(support::get(folder_ / "b.jsonl"), text);
  EXPECT_EQ(opened(folder_ / "b.h5").groups.size(), 1u);
}

TEST_F(RolloutFiles, ScoresOfHdf5AreHdf5WithTheRestCarriedThrough) {
  hdf5(all_forms);
  const std::string out = folder_ / "out.h5";
  const double third = -1.0 / 3;
  write_scored(hdf5_, out, "ref_logprobs", {{"a", {third, -1}}, {"8", {-0.1}}});
  EXPECT_EQ(rollout_kind(out), RolloutKind::hdf5);
  convert(out, folder_ / "out.jsonl");
  auto expected = lines_of(lines_);
  expected[0]["responses"][0]["ref_logprobs"] = {third, -1};
  expected[0]["responses"][1]["ref_logprobs"] = {-0.1};
  expect_equal(lines_of(folder_ / "out.jsonl"), expected);
}

TEST_F(RolloutFiles, ConversionsAreRefused) {
  const auto refused = [&](const std::string& text, const std::string& to) {
    support::put(lines_, text);
    const auto refusal = refusal_of([&] { convert(lines_, folder_ / to); });
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
      EXPECT_EQ(entry.path().string(), lines_) << text;
    return refusal;
  };
  const auto named = refused(all_forms, "b.jsonl");
  expect_parts(named.message, {lines_, "JSON lines", "becomes HDF5", "ends in .jsonl", "-o"});
  EXPECT_EQ(named.status, 2);
  expect_parts(refused("", "b.h5").message, {lines_, "no group"});
  expect_parts(refused(all_forms + "\n{", "b.h5").message, {lines_ + " line 4", "no valid JSON"});
  const std::string bad =
      R"({"id": "g", "prompt": [1], "responses": [{"id": "r", "ids": [1], "reward": NaN}]})";
  expect_parts(refused(all_forms + "\n" + bad, "b.h5").message,
               {lines_ + " line 4: group g: response r: reward"});
  EXPECT_EQ(refusal_of([&] { convert(folder_ / "none", hdf5_); }).status, 2);
  expect_parts(refused(all_forms, "no/b.h5").message, {folder_ / "no/b.h5"});
}

// The same words as for lines.
TEST_F(RolloutFiles, FaultsOfGroupsHaveTheTextsOfLines) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::string group = hdf5_ + " line 1: group 7", a = group + ": response a: ";
  const auto expect = [&](const std::string& text, bool of_response = true) {
    expect_parts(refusal(), {text});
    if (of_response) {
      EXPECT_EQ(opened(hdf5_, OnBadSample::drop).dropped_responses, 1) << text;
    }
    hdf5(all_forms);
  };
  hdf5(all_forms);
  replace<int32_t>("groups/prompt", {5, -6, 7, 6});
  expect(group + ": prompt[1] is -6, expected a token id (0 or more, below 2^31)", false);
  replace<int64_t>("groups/prompt_offsets", {0, 0, 4});
  expect(group + ": prompt is empty", false);
  replace<int32_t>("responses/ids", {1, -2, 3, 3, 4, 1});
  expect(a + "ids[1] is -2, expected a token id (0 or more, below 2^31)");
  replace<double>("responses/reward", {nan, 1, 2, 3});
  expect(a + "reward is not finite");
  replace<double>("responses/logprobs", {-1, 0.5});
  expect(a + "logprobs[1] is 0.5, expected a log-probability (0 or less)");
  replace<int64_t>("responses/logprobs_offsets", {0, 1, 2, 2, 2});
  expect_parts(refusal(), {a + "logprobs has 1 values for 2 ids"});
  hdf5(all_forms);
  replace<uint8_t>("responses/loss_mask", {0, 2});
  expect(a + "loss_mask[1] is 2, expected 0 or 1");
  replace<double>("responses/advantage", {nan, 2});
  expect(a + "advantage is not finite");
  replace<int64_t>("groups/response_offsets", {0, 0, 4});
  expect(group + ": responses is", false);
  replace<int64_t>("responses/id_offsets", {0, 0, 1, 2, 3});
  expect_parts(refusal(), {"group 7: responses[0]: id is empty"});
}

TEST_F(RolloutFiles, DuplicatesAreFoundInHdf5Too) {
  const auto line = [](const std::string& group, const std::string& prompt,
                       const std::string& response) {
    return R"({"id": ")" + group + R"(", "prompt": [)" + prompt + R"(], "responses": [{"id": ")" +
           response + R"(", "ids": [1], "reward": 1}]})" + "\n";
  };
  hdf5(line("g", "1,2", "a") + line("g", "2,1", "b"));
  expect_parts(refusal(), {hdf5_ + ": group g stands at lines 1 and 2 with different prompts"});
  hdf5(line("g", "1,2", "a") + line("g", "1,2", "b"));
  expect_parts(refusal(), {hdf5_ + ": group g stands at lines 1 and 2 with the same prompt"});
  hdf5(line("g", "1", "a") + line("h", "2", "a"));
  expect_parts(refusal(), {"response a stands at lines 1 and 2"});
  hdf5(line("g", "1,2", "a") + line("h", "1,2", "b"));
  testing::internal::CaptureStderr();
  EXPECT_EQ(refusal(), "");
  expect_parts(testing::internal::GetCapturedStderr(), {"g and h", "same prompt"});
}

TEST_F(RolloutFiles, IdsBeyondTheVocabularyAreNamed) {
  const Rollouts rollouts = opened(hdf5(all_forms));
  const auto message = [&](int64_t vocab) {
    return refusal_of([&] { check_token_ids(rollouts, vocab, Grid::world()); }).message;
  };
  expect_parts(message(7),
               {hdf5_ + " line 1: group 7: prompt[2] is token id 7", "vocabulary of 7"});
  expect_parts(message(8), {"group 7: response a: ids[1] is token id 2147483647"});
  EXPECT_EQ(message(int64_t{1} << 31), "");
}

TEST_F(RolloutFiles, LayoutsAreNotTrusted) {
  const auto expect = [&](std::initializer_list<std::string> parts) {
    expect_parts(refusal(), parts);
    hdf5(all_forms);
  };
  hdf5(all_forms);
  for (const std::string path :
       {"groups/prompt", "groups/prompt_offsets", "groups/id", "groups/id_offsets",
        "groups/response_offsets", "responses/id", "responses/ids", "responses/reward",
        "responses/logprobs", "responses/logprobs_offsets"}) {
    remove(path);
    expect({hdf5_ + ": dataset " + path + " is missing"});
  }
  remove("groups");
  {
    const h5::File file(H5Fopen(hdf5_.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), hdf5_);
    H5Lcreate_soft("groups", file, "groups", H5P_DEFAULT, H5P_DEFAULT);
  }
  expect({hdf5_ + ": cannot look for groups/prompt"});
  replace<double>("groups/prompt", {1, 2, 3, 4});
  expect({hdf5_ + ": dataset groups/prompt is of another type"});
  replace<int64_t>("groups/prompt_offsets", {0, 3, 5});
  expect({hdf5_ + ": dataset groups/prompt_offsets[2] is 5, beyond the elements"});
  replace<int64_t>("groups/prompt_offsets", {0, 4});
  expect({"groups/prompt_offsets has 2 elements, expected 3"});
  replace<int64_t>("groups/response_offsets", {0, int64_t{1} << 40, 4});
  expect({"groups/response_offsets[1] is 1099511627776, beyond the elements"});
  replace<int64_t>("groups/response_offsets", {0, 3, 3});
  expect({"groups/response_offsets[2] is 3, but the elements are 4"});
  replace<double>("responses/reward", {1, 2, 3});
  expect({"has 5 elements, expected 4"});
  replace<int64_t>("responses/advantage_offsets", {0, 2, 2, 2, 2});
  expect({"responses/advantage: response 0 has 2 values, expected one or none"});
  replace<uint8_t>("groups/id", {0xff, 0xc3, 0xa9});
  expect({"groups/id: entry 0 is no UTF-8 text"});
  change_attribute([](const h5::File& file) { h5::write_attribute(file, "format", 2); });
  expect({hdf5_, "format 2", "reads format 1"});
  change_attribute([](const h5::File&) {});
  expect({hdf5_, "no rollouts file"});
  change_attribute([](const h5::File& file) { h5::write_attribute(file, "format", "one"); });
  expect({hdf5_ + ": cannot read attribute format"});
  // what the run does not need is looked at where it is
  const auto expect_converted = [&](std::initializer_list<std::string> parts) {
    EXPECT_EQ(refusal(), "");
    expect_parts(refusal_of([&] { convert(hdf5_, folder_ / "b.jsonl"); }).message, parts);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "b.jsonl.tmp"));
    hdf5(all_forms);
  };
  const auto other = [&](const std::string& text) {
    replace<uint8_t>("groups/other", {text.begin(), text.end()});
    replace<int64_t>("groups/other_offsets", {0, 0, std::ssize(text)});
  };
  other("{");
  expect_converted({"groups/other: entry 1: no valid JSON"});
  other("[1]");
  expect_converted({"groups/other: entry 1 is no JSON object"});
  other(std::string(100'000, '['));
  expect_converted({"groups/other: entry 1: nested more than 64 deep"});
  for (const std::string text : {R"({"prompt": [1]})", R"({"id": 9})", R"({"responses": null})"}) {
    other(text);
    expect_converted({"groups/other: entry 1 holds", "which has a dataset of its own"});
  }
}

TEST_F(RolloutFiles, WhatIsOptionalMayBeMissing) {
  hdf5(all_forms);
  for (const std::string path :
       {"groups/other", "responses/other", "responses/logprobs", "responses/ref_logprobs",
        "responses/loss_mask", "responses/advantage", "responses/finish_reason"}) {
    remove(path);
    remove(path + "_offsets");
  }
  const Rollouts rollouts = opened(hdf5_);
  EXPECT_TRUE(rollouts.groups[0].responses[0].logprobs.empty());
  EXPECT_FALSE(rollouts.groups[0].responses[0].advantage.has_value());
  convert(hdf5_, folder_ / "b.jsonl");
  EXPECT_EQ(lines_of(folder_ / "b.jsonl")[1]["responses"].dump(),
            R"([{"id":"b","ids":[1],"reward":12345678901234.0}])");
}

// Flipped bytes are refused, naming the file, or change nothing that is read.
TEST_F(RolloutFiles, AnyDamageIsAnErrorOrNone) {
  hdf5(all_forms);
  const std::string good = support::get(hdf5_);
  const auto lines = [&](const std::string& to) {
    convert(hdf5_, to);
    const std::string text = support::get(to);
    std::filesystem::remove(to);
    return text;
  };
  const std::string expected = lines(folder_ / "b.jsonl");
  std::mt19937 random(7);
  int refused = 0;
  for (int round = 0; round < 400; ++round) {
    std::string bytes = good;
    if (round % 4 == 3)
      bytes.resize(random() % bytes.size());
    else
      bytes[random() % bytes.size()] ^= static_cast<char>(1 + random() % 255);
    support::put(hdf5_, bytes);
    try {
      EXPECT_EQ(lines(folder_ / "b.jsonl"), expected) << round;
    } catch (const Error& error) {
      expect_parts(error.what(), {hdf5_});
      ++refused;
    }
  }
  EXPECT_GT(refused, 200);
}

}  // namespace
}  // namespace longstraw
