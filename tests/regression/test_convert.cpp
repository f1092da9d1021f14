// Rollouts in HDF5 as a user meets them: converted, looked at, scored, run.
#include "longstraw/io/flat.hpp"
#include "regression/program.hpp"
#include "support/mounted.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace longstraw::program {
namespace {

using support::Mounted;
using support::small_disk;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Convert : public testing::Test {
 protected:
  Convert() {
    Json one = group("g", random_ids(37, 64, 1), {response("r0", random_ids(9, 64, 2), 1)});
    one["responses"].push_back(response("r1", random_ids(4, 64, 3), 0));
    one["responses"][0]["text"] = "f\u00fcnf";
    one["source"] = {{"weight", 0.1}, {"tags", {"x", nullptr, true}}};
    Json two = group("h", {5}, {response("h0", {6, 7}, 0.25), response("h1", {8}, -1)});
    two["responses"][1]["id"] = 12;
    place.write_rollouts("a.jsonl", {one, two});
    place.write_deck("lines.ini", golden_folder("hybrid") + "/model", "a.jsonl", settings);
    place.write_deck("hdf5.ini", golden_folder("hybrid") + "/model", "a.h5", settings);
    const Outcome outcome = place.succeed(2, "convert a.jsonl -o a.h5");
    EXPECT_THAT(outcome.out, HasSubstr("wrote a.h5: HDF5, 2 group(s), 4 response(s), 38 prompt"));
  }

  const std::string settings = "groups_per_step = 2\nepochs = 2\n[parallel]\nblock_tokens = 8\n";
  Workplace place;
};

TEST_F(Convert, ThereAndBackIsLossless) {
  place.succeed(0, "convert a.h5 -o b.jsonl");
  EXPECT_EQ(nlohmann::json(read_lines(place / "b.jsonl")),
            nlohmann::json(read_lines(place / "a.jsonl")));
}

TEST_F(Convert, InspectTellsTheSameOfBothKinds) {
  const auto facts = [&](const std::string& file) {
    const Outcome outcome = place.succeed(3, "inspect " + file);
    EXPECT_THAT(outcome.out, HasSubstr("prompts    1 to 37 tokens"));
    return outcome.out.substr(outcome.out.find("groups"));
  };
  EXPECT_EQ(facts("a.h5"), facts("a.jsonl"));
}

TEST_F(Convert, ScoresAreThoseOfLinesAndStayInTheKind) {
  place.succeed(2, "score -i lines.ini -o lines.jsonl");
  place.succeed(2, "score -i hdf5.ini -o scored.h5");
  place.succeed(0, "convert scored.h5 -o hdf5.jsonl");
  EXPECT_EQ(nlohmann::json(read_lines(place / "hdf5.jsonl")),
            nlohmann::json(read_lines(place / "lines.jsonl")));
}

TEST_F(Convert, RunsAreThoseOfLines) {
  for (const int ranks : {1, 2, 3}) {
    const auto run = [&](const std::string& deck) {
      const std::string folder = str("{}-{}", deck, ranks);
      place.succeed(ranks, "run -i " + deck + " -d " + folder);
      auto history = history_of(place / folder);
      EXPECT_EQ(history.size(), 2u);
      for (Json& line : history) line.erase("seconds");
      return std::pair(history, read_file(place / folder + "/weights/model.safetensors"));
    };
    const auto lines = run("lines.ini"), hdf5 = run("hdf5.ini");
    EXPECT_EQ(lines.first, hdf5.first);
    EXPECT_TRUE(lines.second == hdf5.second) << "weights differ on " << ranks << " ranks";
  }
}

TEST_F(Convert, RefusalsLeaveNothingBehind) {
  const auto before = place.files();
  const auto refused = [&](const std::string& arguments, int status, const std::string& part) {
    const Outcome outcome = place.run(2, "convert " + arguments);
    EXPECT_EQ(outcome.status, status) << outcome.all();
    ASSERT_EQ(outcome.errors().size(), 1u) << outcome.all();
    EXPECT_THAT(outcome.errors()[0], HasSubstr(part));
    EXPECT_THAT(differences(before, place.files()), IsEmpty());
  };
  refused("a.h5 -o b.h5", 2, "a.h5 holds HDF5 and becomes JSON lines, but b.h5 ends in .h5");
  refused("a.jsonl -o b.jsonl", 2, "becomes HDF5");
  refused("lines.ini -o b.h5", 1, "lines.ini line 1: no valid JSON");
  refused("/proc/self/nothing -o b.h5", 2, "no such file");
}

// Wherever in the file the room ends: what HDF5 writes at once, and what it keeps to the end.
TEST_F(Convert, AFullDiskLeavesNothingBehind) {
  place.write_rollouts("long.jsonl",
                       {group("g", random_ids(70'000, 64, 1), {response("r", {1, 2}, 1)})});
  place.succeed(0, "convert long.jsonl -o long.h5");
  const auto whole = static_cast<int64_t>(std::filesystem::file_size(place / "long.h5")) / 1024;
  int refused = 0;
  for (int64_t size = 8; size <= whole + 8; size += size < whole - 24 ? 64 : 4) {
    const Mounted disk(place / "small", small_disk(str("{}k", size)));
    if (!disk) GTEST_SKIP() << "mounting is not allowed here";
    const Outcome outcome = place.run(0, "convert long.jsonl -o small/long.h5");
    if (outcome.status == 0) continue;
    ++refused;
    EXPECT_EQ(outcome.status, 1) << size << ": " << outcome.all();
    EXPECT_THAT(outcome.errors(),
                ElementsAre(AnyOf(HasSubstr("No space left"), HasSubstr("no room for"))))
        << size;
    EXPECT_TRUE(std::filesystem::is_empty(place / "small")) << size;
  }
  EXPECT_GT(refused, 8);
}

// Damage is found before any work, by file and dataset.
TEST_F(Convert, DamagedFilesAreRefused) {
  const std::string good = read_file(place / "a.h5");
  const auto expect = [&](const std::vector<std::string>& named) {
    std::vector<std::string> parts = named;
    parts.push_back(place / "a.h5");
    expect_refused(place, "run -i hdf5.ini -d out", 1, parts);
    write_file(place / "a.h5", good);
  };
  const auto replace = [&]<class T>(const std::string& path, const std::vector<T>& values) {
    const h5::File file(H5Fopen((place / "a.h5").c_str(), H5F_ACC_RDWR, H5P_DEFAULT), path);
    h5::check_h5(H5Ldelete(file, path.c_str(), H5P_DEFAULT), path);
    FlatWriter<T> writer(file, path, {"replaced"});
    writer.append(values);
    writer.finish();
  };
  write_file(place / "a.h5", good.substr(0, good.size() / 2));
  expect({"truncated"});
  replace("groups/prompt_offsets", std::vector<int64_t>{0, 50, 38});
  expect({"dataset groups/prompt_offsets[1] is 50", "38"});
  replace("responses/ids_offsets", std::vector<int64_t>{0, 9, 8, 15, 16});
  expect({"dataset responses/ids_offsets[2] is 8, below the one before it, 9"});
  replace("groups/prompt", std::vector<double>(38, 1.0));
  expect({"dataset groups/prompt is of another type"});
  std::vector<int32_t> ids(38, 3);
  ids[36] = 64;
  replace("groups/prompt", ids);
  expect({"line 1: group g: prompt[36] is token id 64", "vocabulary of 64"});
  ids[36] = -1;
  replace("groups/prompt", ids);
  expect({"line 1: group g: prompt[36] is -1, expected a token id"});
}

}  // namespace
}  // namespace longstraw::program
