// What a run leaves behind: weights, history, gradients, deck, log, output; and what becomes of
// steps that are not finite.
#include "regression/program.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

namespace longstraw::program {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr int failed = 1;

class Runs : public testing::Test {
 protected:
  // The two groups of the golden case: a wrapper with vision and MTP tensors, 2 shards and index.
  Runs() {
    place.copy_model("hybrid_tied_bf16", "model");
    place.write_deck("deck.ini", "model", golden_folder("hybrid_tied_bf16") + "/rollouts.jsonl",
                     "[optimizer]\nlr = 0.01\n[output]\ngradients = true\n");
  }
  void run(const std::string& folder, int ranks, const std::string& more = "") {
    last = place.succeed(ranks, "run -i deck.ini -d " + folder + " " + more);
  }

  Workplace place;
  Outcome last;
};

std::vector<std::string> keys_of(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

std::vector<Json> without_seconds(std::vector<Json> lines) {
  for (Json& line : lines) line.erase("seconds");
  return lines;
}

TEST_F(Runs, TheSameTwiceIsTheSameBits) {
  for (const int ranks : {1, 3}) {
    const std::string a = str("a{}", ranks), b = str("b{}", ranks);
    const std::string more = "rollouts.epochs=2 parallel.block_tokens=16 parallel.page_tokens=9";
    run(a, ranks, more), run(b, ranks, more);
    EXPECT_EQ(without_seconds(history_of(place / a)), without_seconds(history_of(place / b)));
    EXPECT_THAT(differences(files_of(place / a + "/weights"), files_of(place / b + "/weights")),
                IsEmpty());
    for (int step = 0; step < 4; ++step) {
      const std::string file = str("/gradient-{}.h5", step);
      EXPECT_TRUE(read_file(place / a + file) == read_file(place / b + file)) << file;
    }
  }
}

// The design's list, and no number missing.
TEST_F(Runs, HistoryHasItsColumns) {
  run("out", 2);
  const auto lines = history_of(place / "out");
  ASSERT_EQ(lines.size(), 2u);
  for (const Json& line : lines) {
    for (const char* key :
         {"step", "loss", "pg_loss", "kl_loss", "entropy", "grad_norm", "lr", "reward_mean",
          "reward_std", "advantage_mean", "ratio_mean", "ratio_max", "clip_fraction_low",
          "clip_fraction_high", "zero_std_groups", "prompt_tokens", "response_tokens"}) {
      ASSERT_TRUE(line.contains(key)) << key;
      EXPECT_TRUE(line[key].is_number()) << key;
    }
    EXPECT_EQ(line["gradient_mode"], "exact");
    EXPECT_THAT(keys_of(line["seconds"]),
                ElementsAre("capture", "score", "replay", "prompt_backward", "update", "dump"));
    for (const auto& [key, value] : line["seconds"].items()) EXPECT_GE(value, 0.0) << key;
    for (const char* label : {"total", "weights", "gradient", "moments", "keys", "recurrent"})
      EXPECT_GT(line["bytes_peak"][label], 0) << label;
  }
  EXPECT_EQ(lines[0]["step"], 0);
  EXPECT_EQ(lines[1]["step"], 1);
  EXPECT_EQ(lines[0]["prompt_tokens"], 97);
  EXPECT_EQ(lines[0]["response_tokens"], 17);
  EXPECT_EQ(lines[0]["reward_mean"], 0.0);
  EXPECT_EQ(lines[0]["lr"], 0.01);
}

TEST_F(Runs, WeightsHaveTheLayoutOfTheirSource) {
  for (const std::string file : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
    write_file(place / "model/" + file, "text of " + file + "\n\xff");
  run("out", 2);
  auto before = files_of(place / "model"), after = files_of(place / "out/weights");
  EXPECT_EQ(Json::parse(after.at("longstraw.json")).at("gradient_mode"), "exact");
  after.erase("longstraw.json");  // how the weights came about: the one file that is ours
  EXPECT_EQ(keys_of(Json(before)), keys_of(Json(after)));
  for (const auto& [name, text] : before) {
    if (!name.ends_with(".safetensors")) {
      EXPECT_EQ(after[name], text) << name;
      continue;
    }
    const Safetensors was = Safetensors::read(place / "model/" + name);
    const Safetensors is = Safetensors::read(place / "out/weights/" + name);
    const size_t header = text.size() - was.data.size();
    EXPECT_EQ(after[name].substr(0, header), text.substr(0, header)) << name;
    for (const auto& [tensor, entry] : was.header.items()) {
      if (tensor == "__metadata__") continue;
      const size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
      const bool trained = !tensor.starts_with("mtp.") && !tensor.starts_with("model.visual.");
      EXPECT_EQ(was.data.substr(begin, end - begin) != is.data.substr(begin, end - begin), trained)
          << tensor;
    }
  }
  // What came out goes in again.
  place.succeed(2, "inspect out/weights");
  run("next", 2, "model.checkpoint=out/weights");
}

// Names of files are bytes; JSON is UTF-8.
TEST_F(Runs, FilesMayHaveNamesThatAreNoUtf8) {
  place.copy_model("hybrid", "mod\xe9l");
  place.write_deck("latin.ini", "mod\xe9l", golden_folder("hybrid") + "/rollouts.jsonl");
  place.succeed(2, "run -i latin.ini -d out\xe9");
  EXPECT_EQ(read_json(place / "out\xe9/weights/longstraw.json")["checkpoint"],
            place / "mod\xef\xbf\xbdl");
  place.succeed(1, "verify -i latin.ini -o v.json --directions 1 model.precision=float64");
}

TEST_F(Runs, CompletedDeckRunsAgainFromAnywhere) {
  run("out", 2, "gradient.mode=frozen rollouts.epochs=2 optimizer.schedule=cosine");
  const std::string deck = read_file(place / "out/deck.ini");
  for (const std::string line :
       {"mode = frozen", "epochs = 2", "schedule = cosine", "clip_ratio_high = 0.2", "lr = 0.01"})
    EXPECT_THAT(deck, HasSubstr(line + "\n"));
  const Outcome again =
      place.run(2, "run -i " + place / "out/deck.ini" + " -d " + place / "again", "", "/");
  EXPECT_EQ(again.status, 0) << again.all();
  EXPECT_THAT(differences(files_of(place / "again/weights"), files_of(place / "out/weights")),
              IsEmpty());
  EXPECT_EQ(read_file(place / "again/deck.ini"), deck);
}

TEST_F(Runs, OutputIsPlainInABatchLog) {
  run("out", 2);
  for (const std::string line :
       {"LongStraw 0.", "2 rank(s) on 1 node(s)", "precision  float32", "kernels ", "qwen3_5",
        "rope       default", "step 1/2", "tokens/s", "wrote "})
    EXPECT_THAT(last.out, HasSubstr(line));
  for (const char control : {'\r', '\033'}) EXPECT_EQ(last.all().find(control), std::string::npos);
  EXPECT_EQ(last.out.find("step 1/2"), last.out.rfind("step 1/2")) << "said by more than one rank";
  const std::string log = read_file(place / "out/log");
  for (const std::string line : {"2 rank(s)", "step 1/2", "step 2/2", "wrote "})
    EXPECT_THAT(log, HasSubstr(line));
}

// ---- not finite

class NotFinite : public testing::Test {
 protected:
  // A checkpoint whose embedding of one token is infinite, and a token that only the second
  // response of the first group has as an input.
  NotFinite() {
    place.copy_model("hybrid", "model");
    Safetensors weights = Safetensors::read(place / "model/model.safetensors");
    constexpr int hidden = 32;
    weights.values("model.embed_tokens.weight")[bad * hidden + 5] =
        std::numeric_limits<float>::infinity();
    weights.write(place / "model/model.safetensors");
    for (const std::string id : {"a", "b"}) {
      std::vector<Json> responses;
      for (int i = 0; i < 3; ++i)
        responses.push_back(response(str("{}{}", id, i), random_ids(6, bad, i), i == 0));
      groups.push_back(group(id, random_ids(20, bad, static_cast<unsigned>(id[0])), responses));
    }
    groups[0]["responses"][1]["ids"][2] = bad;
    place.write_rollouts("rollouts.jsonl", groups);
    place.write_deck("deck.ini", "model", "rollouts.jsonl", "[optimizer]\nlr = 0.01\n");
  }

  static constexpr int bad = 63;
  std::vector<Json> groups;
  Workplace place;
};

TEST_F(NotFinite, StepStopsTheRunAndLeavesTheWeightsAsTheyWere) {
  const Outcome outcome = place.run(2, "run -i deck.ini -d out");
  EXPECT_EQ(outcome.status, failed);
  ASSERT_EQ(outcome.errors().size(), 1u) << outcome.all();
  for (const std::string part : {"step 1", "not finite", "response a1", "on_nonfinite = skip"})
    EXPECT_THAT(outcome.errors()[0], HasSubstr(part));
  EXPECT_THAT(outcome.err, Not(HasSubstr("MPI_ABORT")));
  const auto lines = history_of(place / "out");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["outcome"], "stopped: not finite");
  EXPECT_EQ(lines[0]["nonfinite_response"], "a1");
  EXPECT_TRUE(lines[0]["loss"].is_null());
  EXPECT_THAT(differences(files_of(place / "out/weights"), files_of(place / "model")),
              testing::ElementsAre("longstraw.json"));
  // It has not finished, and the cure is taken.
  const Outcome again =
      place.succeed(2, "run -i deck.ini -d out -r auto optimizer.on_nonfinite=skip");
  EXPECT_THAT(again.out, HasSubstr("a new run"));
  EXPECT_EQ(history_of(place / "out").size(), 2u);
}

TEST_F(NotFinite, StepCanBeSkippedAndLeavesNoTrace) {
  const Outcome outcome = place.succeed(2, "run -i deck.ini -d out optimizer.on_nonfinite=skip");
  EXPECT_THAT(outcome.err, HasSubstr("warning: step 1: the gradient is not finite"));
  EXPECT_THAT(outcome.err, HasSubstr("response a1"));
  const auto lines = history_of(place / "out");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["outcome"], "skipped: not finite");
  EXPECT_EQ(lines[1]["outcome"], "updated");
  place.write_rollouts("rollouts.jsonl", {groups[1]});
  place.succeed(2, "run -i deck.ini -d alone");
  EXPECT_THAT(differences(files_of(place / "out/weights"), files_of(place / "alone/weights")),
              ElementsAre("longstraw.json"));  // which tells of two steps, not one
}

TEST_F(NotFinite, ScoresAreNotWritten) {
  const auto before = place.files();
  const Outcome outcome = place.run(2, "score -i deck.ini -o out.jsonl");
  EXPECT_EQ(outcome.status, failed);
  ASSERT_EQ(outcome.errors().size(), 1u) << outcome.all();
  EXPECT_THAT(outcome.errors()[0], HasSubstr("response a1"));
  EXPECT_THAT(differences(before, place.files()), IsEmpty());
}

}  // namespace
}  // namespace longstraw::program
