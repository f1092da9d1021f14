// Decks that are refused, and the messages that say why (trial 60 and its kind).
#include "regression/program.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace longstraw::program {
namespace {

constexpr int bad_deck = 2;

class RefusedDecks : public testing::Test {
 protected:
  RefusedDecks() { write(""); }

  void write(const std::string& more) {
    place.write_deck("deck.ini", golden_folder("hybrid") + "/model",
                     golden_folder("hybrid") + "/rollouts.jsonl", more);
  }

  // A deck with `more` below its five lines of model and rollouts.
  void expect_deck(const std::string& more, const std::vector<std::string>& named) {
    write(more);
    expect_refused(place, "run -i deck.ini -d out", bad_deck, named);
  }

  Workplace place;
};

// Trial 60.
TEST_F(RefusedDecks, UnknownKeysNameTheNearest) {
  expect_deck("[optimizer]\nlearing_rate = 1\nlr_ = 2\n",
              {"deck.ini line 6", "optimizer.learing_rate", "unknown key", "did you mean"});
  expect_deck("[objective]\nclip_ratio_hi = 0.3\n", {"line 6", "objective.clip_ratio_hi = 0.3",
                                                     "did you mean objective.clip_ratio_high?"});
  expect_deck("[optimizer]\nblock_tokens = 8\n", {"did you mean parallel.block_tokens?"});
  write("");
  expect_refused(place, "run -i deck.ini -d out gradient.mod=frozen", bad_deck,
                 {"command line: gradient.mod", "did you mean gradient.mode?"});
  expect_refused(place, "score -i deck.ini -o out.jsonl gradient.mod=frozen", bad_deck,
                 {"gradient.mod", "did you mean gradient.mode?"});
}

TEST_F(RefusedDecks, ValuesOutsideTheirRangeAreNamed) {
  expect_deck("[optimizer]\nlr = -1\n", {"deck.ini line 6", "optimizer.lr = -1", "0 to 10"});
  expect_deck("[optimizer]\nlr = 1e300\n", {"optimizer.lr = 1e300", "0 to 10"});
  expect_deck("[optimizer]\nlr = nan\n", {"line 6", "optimizer.lr = nan", "expected a number"});
  expect_deck("[parallel]\nblock_tokens = 0\n", {"line 6", "parallel.block_tokens = 0", "1 to"});
  expect_deck("[parallel]\nblock_tokens = 1e3\n", {"block_tokens = 1e3", "whole number"});
  expect_deck("[gradient]\nmode = eaxct\n", {"line 6", "gradient.mode = eaxct", "exact, frozen"});
  expect_deck("[objective]\nnorm_adv_by_std = yes\n", {"norm_adv_by_std = yes", "true or false"});
  expect_deck("[objective]\nloss_agg_mode = seq-mean-token-sum-norm\n",
              {"objective.loss_scale_factor", "set it"});
  expect_deck("[optimizer]\neps = 0\n", {"optimizer.eps = 0", "at least"});
  expect_deck("[rollouts]\ngroups_per_step = 2\n", {"groups_per_step = 2", "1 group"});
  expect_deck("[rollouts]\nepochs = 3\n[run]\nsteps = 4\n",
              {"run.steps = 4", "3 epoch(s) of 1 group(s), 1 a step, have 3", "rollouts.epochs"});
  expect_deck("[rollouts]\nepochs = 9223372036854775807\n", {"rollouts.epochs", "run.steps"});
}

TEST_F(RefusedDecks, LinesThatAreNoDeckAreNamed) {
  expect_deck("[optimizer]\nlr 1\n", {"deck.ini line 6", "lr 1"});
  expect_deck("[optimizer\nlr = 1\n", {"deck.ini line 5", "no section"});
  expect_deck("[optimizer]\nlr = 1\nlr = 2\n", {"lr is given twice", "line 6", "line 7"});
  write_file(place / "deck.ini", "lr = 1\n");
  expect_refused(place, "run -i deck.ini -d out", bad_deck, {"line 1", "lr", "no section"});
  write_file(place / "deck.ini", "");
  expect_refused(place, "run -i deck.ini -d out", bad_deck, {"model.checkpoint is missing"});
  write_file(place / "deck.ini", "[model]\ncheckpoint = \n[rollouts]\nfile = x\n");
  expect_refused(place, "run -i deck.ini -d out", bad_deck, {"model.checkpoint", "a path"});
}

// The completed deck of such a run could not be read back.
TEST_F(RefusedDecks, PathsThatADeckCannotHoldAreRefused) {
  Workplace other;
  std::filesystem::create_directory(other / "a#b");
  other.write_deck("a#b/deck.ini", "model", "rollouts.jsonl");
  expect_refused(other, "run -i 'a#b/deck.ini' -d out", bad_deck, {"a#b/model", "'#'"});
}

}  // namespace
}  // namespace longstraw::program
