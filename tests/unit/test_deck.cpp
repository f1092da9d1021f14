#include "longstraw/deck/deck.hpp"

#include "support/errors.hpp"
#include "support/temporary_folder.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

namespace longstraw {
namespace {

using support::expect_parts;
using support::refusal_of;

const std::string text = R"(# a deck
[model]
checkpoint = folder/model   # relative to the deck
precision = float64

[objective]
clip_ratio_low = 0.3
norm_adv_by_std = false
[run]
  steps=12
)";

Deck sample(std::vector<std::string> overrides = {}) {
  return Deck(text, "/decks/a.ini", overrides);
}

TEST(Deck, ReadsTypedValuesWithCommentsAndSpaces) {
  Deck deck = sample();
  EXPECT_EQ(deck.get<std::string>("model.precision"), "float64");
  EXPECT_EQ(deck.get("objective.clip_ratio_low", 0.2), 0.3);
  EXPECT_EQ(deck.get<int64_t>("run.steps"), 12);
  EXPECT_FALSE(deck.get("objective.norm_adv_by_std", true));
  EXPECT_EQ(deck.get("objective.clip_ratio_high", 0.25), 0.25);
  EXPECT_TRUE(deck.given("run.steps"));
  EXPECT_FALSE(deck.given("objective.clip_ratio_high"));
}

TEST(Deck, CommandLineReplacesTheFile) {
  Deck deck = sample({"run.steps=3", "run.seed = 7"});
  EXPECT_EQ(deck.get<int64_t>("run.steps"), 3);
  EXPECT_EQ(deck.get("run.seed", int64_t{0}), 7);
}

TEST(Deck, FaultsNameFileLineKeyValueAndWhatIsAllowed) {
  Deck deck(text + "seed = seven\n[optimizer]\nlr = -1\nschedule = cosin\neps = nan\nflag = yes\n",
            "a.ini");
  const auto check = [](auto act, std::initializer_list<std::string> parts) {
    const auto refusal = refusal_of(act);
    expect_parts(refusal.message, parts);
    EXPECT_EQ(refusal.status, 2);
  };
  check([&] { deck.get("run.seed", int64_t{0}); },
        {"a.ini line 11", "run.seed", "seven", "whole number"});
  check([&] { deck.get_in("optimizer.lr", 1e-6, 0.0, 1.0); },
        {"a.ini line 13", "optimizer.lr", "-1", "0 to 1"});
  check(
      [&] {
        deck.one_of("optimizer.schedule", "constant", {"constant", "cosine"});
      },
      {"a.ini line 14", "cosin", "constant, cosine"});
  check([&] { deck.get("optimizer.eps", 1e-8); }, {"a.ini line 15", "nan", "number"});
  check([&] { deck.get("optimizer.flag", false); }, {"a.ini line 16", "yes", "true or false"});
  check([&] { deck.get<double>("optimizer.beta1"); }, {"a.ini", "optimizer.beta1", "missing"});
  constexpr int64_t any = std::numeric_limits<int64_t>::max();
  Deck small = sample({"run.steps=0"});
  check([&] { small.get_in("run.steps", int64_t{1}, int64_t{1}, any); },
        {"command line", "run.steps = 0", "at least 1"});
}

TEST(Deck, NumbersMustBeWhole) {
  for (const char* value : {"1.5", "1e3", "", "12 13", "0x10", "99999999999999999999"}) {
    Deck deck(std::string("[a]\nb = ") + value + "\n", "a.ini");
    EXPECT_EQ(refusal_of([&] { deck.get<int64_t>("a.b"); }).status, 2) << value;
  }
  for (const char* value : {"1,5", "inf", "1e999", "1.0x", ""}) {
    Deck deck(std::string("[a]\nb = ") + value + "\n", "a.ini");
    EXPECT_EQ(refusal_of([&] { deck.get<double>("a.b"); }).status, 2) << value;
  }
}

TEST(Deck, LinesThatAreNoDeckAreRefused) {
  const auto message = [](const std::string& bad) {
    const auto refusal = refusal_of([&] { Deck deck("[a]\nb = 1\n" + bad + "\n", "a.ini"); });
    EXPECT_EQ(refusal.status, 2) << bad;
    return refusal.message;
  };
  expect_parts(message("nonsense"), {"a.ini line 3", "nonsense"});
  expect_parts(message("[open"), {"a.ini line 3", "[open"});
  expect_parts(message("[]"), {"a.ini line 3"});
  expect_parts(message("b = 2"), {"a.b", "line 2", "line 3", "'1'", "'2'"});
  expect_parts(refusal_of([] { Deck deck("b = 1\n", "a.ini"); }).message, {"a.ini line 1", "b"});
}

TEST(Deck, ArgumentsThatAreNoOverrideAreRefused) {
  for (const char* bad : {"run.steps", "steps=3", "run.steps=3#4"}) {
    const auto refusal = refusal_of([&] { sample({bad}); });
    EXPECT_EQ(refusal.status, 2) << bad;
    expect_parts(refusal.message, {"command line"});
  }
  expect_parts(refusal_of([] {
                 sample({"run.steps=3", "run.steps=4"});
               }).message,
               {"run.steps", "'3'", "'4'", "twice"});
}

// Trial 60.
TEST(Deck, UnknownKeyNamesTheNearest) {
  Deck deck(text + "[objective]\nclip_ratio_hgih = 0.3\n[optimizer]\nsteps = 4\n", "a.ini");
  deck.path("model.checkpoint");
  for (const char* key : {"objective.clip_ratio_low", "objective.clip_ratio_high"})
    deck.get(key, 0.2);
  deck.get("objective.norm_adv_by_std", true);
  deck.get("run.steps", int64_t{1});
  const auto refusal = refusal_of([&] { deck.check_all_read(); });
  EXPECT_EQ(refusal.status, 2);
  expect_parts(refusal.message,
               {"a.ini line 4: model.precision", "a.ini line 12: objective.clip_ratio_hgih",
                "did you mean objective.clip_ratio_high?", "optimizer.steps", "run.steps?"});
  deck.get("model.precision", "float32");
  deck.get("optimizer.steps", int64_t{1});
  deck.get("objective.clip_ratio_hgih", 0.0);
  EXPECT_NO_THROW(deck.check_all_read());
}

// They would come back from the completed deck as others.
TEST(Deck, PathsThatADeckCannotHoldAreRefused) {
  for (const char* file : {"/de#cks/a.ini", "/de\ncks/a.ini"})
    expect_parts(refusal_of([&] { Deck("[a]\nb = c\n", file).path("a.b"); }).message,
                 {file, "which a deck cannot"});
  expect_parts(refusal_of([&] { Deck("[a]\nb = /x /.\n", "a.ini").path("a.b"); }).message,
               {"path '/x '", "ends in a blank"});
}

TEST(Deck, CompletedDeckReadsTheSame) {
  Deck deck = sample({"run.seed=5"});
  deck.path("model.checkpoint");
  deck.get("objective.kl_loss_coef", 1e-7);
  deck.get("optimizer.schedule", "constant");
  const std::string completed = deck.completed();
  EXPECT_EQ(completed,
            "[model]\ncheckpoint = /decks/folder/model\nprecision = float64\n\n"
            "[objective]\nclip_ratio_low = 0.3\nnorm_adv_by_std = false\nkl_loss_coef = 1e-07\n\n"
            "[run]\nsteps = 12\nseed = 5\n\n[optimizer]\nschedule = constant\n");
  Deck again(completed, "/elsewhere/deck.ini");
  EXPECT_EQ(again.path("model.checkpoint"), "/decks/folder/model");
  EXPECT_EQ(again.get<double>("objective.kl_loss_coef"), 1e-7);
  EXPECT_EQ(again.completed(), completed);
}

TEST(Deck, PathsStartAtTheDeckOrAtTheCommandLine) {
  const std::string here = std::filesystem::current_path().string();
  EXPECT_EQ(sample().path("model.checkpoint"), "/decks/folder/model");
  EXPECT_EQ(sample({"model.checkpoint=../x/"}).path("model.checkpoint"),
            std::filesystem::path(here).parent_path() / "x");
  EXPECT_EQ(sample({"model.checkpoint=/m"}).path("model.checkpoint"), "/m");
  Deck deck = sample();
  EXPECT_EQ(deck.path("rollouts.file", ""), "");
  EXPECT_EQ(deck.path("rollouts.other", "b.jsonl"), "/decks/b.jsonl");
  Deck bare("[model]\ncheckpoint = m\n", "a.ini");
  EXPECT_EQ(bare.path("model.checkpoint"), here + "/m");
}

TEST(Deck, ReadsAFileAndRefusesAMissingOne) {
  const support::TemporaryFolder folder;
  support::put(folder / "a.ini", "\xEF\xBB\xBF[a]\r\nb = 1\r\n");
  EXPECT_EQ(Deck::read(folder / "a.ini").get<int64_t>("a.b"), 1);
  for (const auto& path : {folder / "none.ini", folder.path()}) {
    const auto refusal = refusal_of([&] { Deck::read(path); });
    EXPECT_EQ(refusal.status, 2);
    expect_parts(refusal.message, {path});
  }
}

}  // namespace
}  // namespace longstraw
