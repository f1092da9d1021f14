// `longstraw verify` as a user runs it.
#include "regression/program.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longstraw::program {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int failed = 1, bad_arguments = 2;

class Verify : public testing::Test {
 protected:
  Verify() {
    place.copy_model("hybrid", "model");
    place.write_deck("deck.ini", "model", golden_folder("hybrid") + "/rollouts.jsonl");
  }
  Workplace place;
};

TEST_F(Verify, TellsOfTheGradientAndChangesNothing) {
  const auto before = place.files();
  const Outcome told = place.succeed(2, "verify -i deck.ini");
  for (const char* part :
       {"gradient.mode = frozen leaves out", "self_attn.k_proj", "by layer",
        "the slope of the loss", "the gradient's", "random 2", "float32", "float64", "held"})
    EXPECT_THAT(told.out, HasSubstr(part));
  EXPECT_THAT(told.out, Not(HasSubstr("EXCEEDED")));
  EXPECT_EQ(place.files(), before);

  place.succeed(1, "verify -i deck.ini -o v.json --directions 1 model.precision=float64");
  const Json json = read_json(place / "v.json");
  EXPECT_EQ(json["held"], true);
  EXPECT_EQ(json["ranks"], 1);
  EXPECT_EQ(json["precision"], "float64");
  EXPECT_EQ(json["differences"].size(), 2u);
}

TEST_F(Verify, ComparesRunsOnOtherRanks) {
  place.succeed(1, "run -i deck.ini -d one output.gradients=true gradient.mode=frozen");
  place.succeed(3, "run -i deck.ini -d three output.gradients=true");
  for (const std::string run : {"one", "three"})
    place.succeed(2, "verify -i deck.ini --directions 0 --against " + run + "/gradient-0.h5");

  // The gradient at other weights.
  place.succeed(1, "run -i deck.ini -d later optimizer.lr=0.01");
  const Outcome other = place.run(2,
                                  "verify -i deck.ini --directions 0 -o v.json --against "
                                  "three/gradient-0.h5 model.checkpoint=later/weights");
  EXPECT_EQ(other.status, failed);
  EXPECT_THAT(other.out, HasSubstr("EXCEEDED"));
  ASSERT_EQ(other.errors().size(), 1u) << other.all();
  EXPECT_THAT(other.errors()[0], HasSubstr("a bound was exceeded"));
  EXPECT_EQ(read_json(place / "v.json")["held"], false);
}

TEST_F(Verify, ACheckComputesAndWritesNothing) {
  const auto before = place.files();
  const Outcome checked = place.succeed(2, "verify -i deck.ini -o v.json -n");
  EXPECT_THAT(checked.out, HasSubstr("checked"));
  EXPECT_THAT(checked.out, Not(HasSubstr("slope")));
  EXPECT_EQ(place.files(), before);
}

TEST_F(Verify, RefusesBeforeItComputes) {
  expect_refused(place, "verify -i deck.ini --directions -1", bad_arguments, {"--directions"});
  expect_refused(place, "verify -i deck.ini --against none.h5", failed, {"none.h5"});
  expect_refused(place, "verify -i deck.ini --against /dev/zero", failed,
                 {"/dev/zero", "no regular file"});
  expect_refused(place, "verify -i deck.ini --against " + golden_folder("hybrid") + "/expected.h5",
                 failed, {"expected.h5 is no gradient file", "gradient_mode"});
  expect_refused(place, "verify -i deck.ini -o deck.ini", bad_arguments, {"deck.ini exists"});
  expect_refused(place, "verify -i deck.ini -o no/v.json", bad_arguments, {"no"});
  place.write_rollouts("equal.jsonl",
                       {group("g", {1, 2, 3}, {response("r0", {4}, 1), response("r1", {6}, 1)})});
  expect_refused(place, "verify -i deck.ini rollouts.file=equal.jsonl", failed,
                 {"first step", "rewards"});
}

}  // namespace
}  // namespace longstraw::program
