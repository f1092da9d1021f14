// Rollouts in HDF5 on any number of ranks: a rank holds its slice of a block of a prompt and no
// more, results are those of JSON lines, and what one rank finds all refuse.
#include "longstraw/sim/rollout_files.hpp"

#include "longstraw/core/random.hpp"
#include "longstraw/policy/rollout_lines.hpp"
#include "longstraw/sim/rollout_hdf5.hpp"
#include "reference/made_case.hpp"
#include "support/errors.hpp"
#include "support/temporary_folder.hpp"

#include <gtest/gtest.h>

namespace longstraw {
namespace {

using json = nlohmann::ordered_json;
using support::expect_parts;
using support::refusal_of;

constexpr int64_t kib = 1024, vocab = 1000;

Grid grid() { return Grid::world(); }

// Tokens that nobody holds.
Prompt endless(int64_t tokens, int64_t wrong_at = -1, int32_t wrong = 0) {
  return {{0, tokens}, [=](int64_t begin, std::span<int32_t> to) {
            for (int32_t& id : to) {
              id = static_cast<int32_t>(random_bits(3, 0, static_cast<uint64_t>(begin)) % vocab);
              if (begin++ == wrong_at) id = wrong;
            }
          }};
}

void put_group(GroupWriter& writer, const std::string& id, const Prompt& prompt,
               const json& responses) {
  RawGroup group;
  group.object = {{"id", id}, {"prompt", nullptr}, {"responses", responses}};
  group.prompt = prompt;
  writer.put(group);
}

void write_prompts(const std::string& path, const std::vector<Prompt>& prompts) {
  if (grid().rank() == 0) {
    RolloutHdf5Writer writer(path);
    for (size_t g = 0; g < prompts.size(); ++g) {
      const json response = {{"id", str("r{}", g)}, {"ids", {1u, 2u}}, {"reward", 1}};
      put_group(writer, str("g{}", g), prompts[g], json::array({response}));
    }
    writer.finish();
  }
  grid().barrier();
}

// A line of /proc/self/status, in bytes.
int64_t memory(const std::string& line) {
  const std::string status = support::get("/proc/self/status");
  return std::stoll(status.substr(status.find(line + ":") + line.size() + 1)) * kib;
}

// Everything that a run does with the tokens of a prompt.
void walk(const std::string& path, int64_t block_tokens) {
  const Rollouts rollouts = open_rollouts(path, OnBadSample::stop, grid());
  agree(grid(), [&] { check_token_ids(rollouts, vocab, grid()); });
  const Prompt& prompt = rollouts.groups[0].prompt;
  const Prompt should = endless(prompt.size());
  EXPECT_EQ(prompt.last(), should.last());
  for (int64_t begin = 0; begin < prompt.size(); begin += block_tokens) {
    const Range positions{begin, std::min(begin + block_tokens, prompt.size())};
    const Block block =
        make_block(grid(), positions, [&](Range slice) { return prompt.ids(slice); });
    EXPECT_EQ(block.ids, should.ids(block.mine)) << begin;
  }
}

TEST(RolloutHdf5, APromptCostsARankItsSlice) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer keeps what is freed";
#endif
  const support::TemporaryFolder folder;
  constexpr int64_t tokens = 2'000'003, block = 1 << 16;
  write_prompts(folder / "short.h5", {endless(100)});
  write_prompts(folder / "long.h5", {endless(tokens)});
  walk(folder / "short.h5", block);  // what the libraries keep
  support::put("/proc/self/clear_refs", "5");
  const int64_t before = memory("VmHWM");
  walk(folder / "long.h5", block);
  // Of a block: this rank's ids, those expected, their positions. Of the file: a cache of chunks of
  // 1 MiB and two pieces of 256 KiB.
  const int64_t slice = (block / grid().size() + 1) * (4 + 4 + 8);
  EXPECT_LT(memory("VmHWM") - before, slice + 2048 * kib);
  EXPECT_GT(tokens * 4, slice + 4096 * kib) << "the bound says nothing";
}

// Groups as a file of either kind.
void write_groups(GroupWriter& writer, const std::vector<Group>& groups) {
  for (const Group& group : groups) {
    json responses = json::array();
    for (const Response& r : group.responses)
      responses.push_back({{"id", r.id},
                           {"ids", r.ids},
                           {"reward", r.reward},
                           {"logprobs", r.logprobs},
                           {"ref_logprobs", r.ref_logprobs}});
    put_group(writer, group.id, group.prompt, responses);
  }
  writer.finish();
}

TEST(RolloutHdf5, ResultsAreThoseOfLinesBitForBit) {
  const support::TemporaryFolder folder;
  const ModelConfig config = reference::small_config();
  folder.prepare([&] {
    const auto groups = reference::made_groups(
        {{.prompt = 131, .responses = {5, 1, 33}}, {.prompt = 1, .responses = {20, 2}}},
        config.vocab, 4);
    LineWriter lines(folder / "a.jsonl");
    write_groups(lines, groups);
    RolloutHdf5Writer hdf5(folder / "a.h5");
    write_groups(hdf5, groups);
  });
  ObjectiveSettings objective;
  objective.old_logprobs = OldLogprobs::given;
  objective.kl_loss_coef = 0.1;
  for (const GradientMode mode : {GradientMode::exact, GradientMode::frozen}) {
    const auto run = [&](const std::string& name) {
      const Rollouts rollouts = open_rollouts(folder / name, OnBadSample::stop, grid());
      reference::MadeRun made(grid(), config, rollouts.groups, objective, DType::float32,
                              {.mode = mode, .block_tokens = 16, .page_tokens = 10});
      return std::pair(made.gradient(), made.stepper.summary().loss);
    };
    EXPECT_EQ(run("a.jsonl"), run("a.h5"));
  }
}

TEST(RolloutHdf5, WhatOneRankFindsAllRefuse) {
  const support::TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  constexpr int64_t tokens = 200'001;
  for (const int64_t at : {int64_t{0}, tokens / 2, tokens - 1})
    for (const int32_t wrong : {-7, static_cast<int32_t>(vocab)}) {
      write_prompts(path, {endless(10), endless(tokens, at, wrong), endless(5, 4, wrong)});
      const auto refusal = refusal_of([&] {
        const Rollouts rollouts = open_rollouts(path, OnBadSample::stop, grid());
        agree(grid(), [&] { check_token_ids(rollouts, vocab, grid()); });
      });
      EXPECT_TRUE(refusal.everywhere);
      expect_parts(refusal.message,
                   {path + " line 2: group g1: prompt", str("[{}] is ", at), str("{}", wrong)});
    }
  folder.prepare([&] { support::put(path, support::get(path).substr(0, 5000)); });
  const auto refusal = refusal_of([&] { (void)open_rollouts(path, OnBadSample::stop, grid()); });
  EXPECT_TRUE(refusal.everywhere);
  expect_parts(refusal.message, {path});
}

TEST(RolloutHdf5, HashesDependOnTheTokensOnly) {
  const support::TemporaryFolder folder;
  write_prompts(folder / "a.h5", {endless(70'000), endless(1), endless(70'000)});
  const Rollouts rollouts = open_rollouts(folder / "a.h5", OnBadSample::stop, grid());
  const auto hashes = prompt_hashes(rollouts, grid());
  uint64_t should = 0, at = 0;
  for (const int32_t id : endless(70'000).ids({0, 70'000}))
    should += random_bits(static_cast<uint64_t>(id), 0, at++);
  EXPECT_EQ(hashes[0], should);
  EXPECT_EQ(hashes[2], should);
  EXPECT_NE(hashes[1], should);
}

}  // namespace
}  // namespace longstraw
