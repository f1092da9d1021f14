// What users do with dumps besides going on from them: inspect and export.
#include "longstraw/io/hdf5.hpp"
#include "regression/program.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

namespace longstraw::program {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class Dumped : public testing::Test {
 protected:
  // BF16 tensors, two shards, vision and MTP tensors that are not trained.
  Dumped() {
    place.copy_model("hybrid_tied_bf16", "model");
    place.write_deck("deck.ini", "model", golden_folder("hybrid_tied_bf16") + "/rollouts.jsonl",
                     "[optimizer]\nlr = 0.01\n[parallel]\nblock_tokens = 16\n"
                     "[dump]\nevery_ticks = 3\nkeep = 1000\n");
    place.succeed(2, "run -i deck.ini -d run");
    for (const auto& entry : fs::directory_iterator(place / "run/dumps")) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("dump-") && (first.empty() || "run/dumps/" + name < first))
        first = "run/dumps/" + name;
    }
  }
  Workplace place;
  std::string first;
  const std::string segment = "run/dumps/prompt-0-0-00000003.h5";  // that it needs
};

TEST_F(Dumped, InspectTellsWhatItIsAndChecksIt) {
  const Outcome facts = place.succeed(1, "inspect " + first);
  for (const char* part : {"2 rank(s)", "step 1, before ", "3 tick(s) and 0 update(s) done",
                           "optimizer", "in prompt-0-0-00000003.h5", "--check: content"})
    EXPECT_THAT(facts.out, HasSubstr(part));
  EXPECT_THAT(place.succeed(3, "inspect --check " + first).out,
              HasSubstr("all content matches its checksums"));
  std::string bytes = read_file(place / segment);
  const size_t at = bytes.size() / 2;
  bytes[at] = static_cast<char>(bytes[at] ^ 16);
  write_file(place / segment, bytes);
  const Outcome damaged = place.run(2, "inspect --check " + first);
  EXPECT_EQ(damaged.status, 1);
  ASSERT_EQ(damaged.errors().size(), 1u);
  EXPECT_THAT(damaged.errors()[0], HasSubstr("prompt-0-0-00000003.h5"));
}

TEST_F(Dumped, PartsOfDumpsAreNamedAsSuch) {
  const Outcome folder = place.run(2, "inspect run");
  EXPECT_EQ(folder.status, 2);
  EXPECT_THAT(folder.errors(), ElementsAre(HasSubstr("name run/weights, or run/dumps/latest")));
  for (const auto& command : {"inspect " + segment, "export " + segment + " -o out"}) {
    const Outcome outcome = place.run(1, command);
    EXPECT_EQ(outcome.status, 1);
    EXPECT_THAT(outcome.all(), HasSubstr("is a part of dumps"));
  }
}

TEST_F(Dumped, ExportedWeightsAreThoseThatTheRunWrote) {
  for (const int ranks : {1, 3}) {
    const std::string out = str("out{}", ranks);
    place.succeed(ranks, "export run/dumps/latest -o " + out);
    EXPECT_THAT(differences(files_of(place / "run/weights"), files_of(place / out)), IsEmpty());
  }
  // Before any update: those that it started from.
  place.succeed(2, "export " + first + " -o start");
  auto start = files_of(place / "start");
  start.erase("longstraw.json");
  for (const auto& [name, text] : files_of(place / "model"))
    EXPECT_TRUE(start[name] == text) << name;
}

TEST_F(Dumped, WeightsNeedNoOtherFile) {
  fs::create_directory(place / "alone");
  fs::copy(place / first, place / "alone/dump-00000003.h5");
  const Outcome facts = place.succeed(2, "inspect alone/dump-00000003.h5");
  EXPECT_THAT(facts.out, HasSubstr("missing: alone/prompt-0-0-00000003.h5"));
  place.succeed(2, "export alone/dump-00000003.h5 -o out");
  EXPECT_TRUE(fs::exists(place / "out/longstraw.json"));
  // What it takes is checked all the same, and a restart takes more.
  const Outcome check = place.run(2, "inspect --check alone/dump-00000003.h5");
  EXPECT_EQ(check.status, 1);
  EXPECT_THAT(check.errors(), ElementsAre(HasSubstr("alone/prompt-0-0-00000003.h5, which is")));
  std::string bytes = read_file(place / first), name;
  {
    const h5::File file = h5::open_file(place / first);
    name = "weights/" + h5::names(file, "weights").front();
    const h5::Dataset set(H5Dopen2(file, name.c_str(), H5P_DEFAULT), name);
    bytes[H5Dget_offset(set) + 5] ^= 4;
  }
  write_file(place / "alone/dump-00000003.h5", bytes);
  const Outcome damaged = place.run(2, "export alone/dump-00000003.h5 -o damaged");
  EXPECT_EQ(damaged.status, 1);
  EXPECT_THAT(damaged.errors(), ElementsAre(HasSubstr(name)));
}

TEST_F(Dumped, MastersAreNotRounded) {
  place.succeed(2, "export run/dumps/latest -o masters --masters");
  int trained = 0;
  int64_t bytes = 0;
  for (const auto& [name, text] : files_of(place / "masters")) {
    if (!name.ends_with(".safetensors")) continue;
    const auto masters = Safetensors::read(place / "masters/" + name);
    bytes += std::ssize(masters.data);
    const auto rounded = Safetensors::read(place / "run/weights/" + name);
    for (const auto& [tensor, facts] : masters.header.items()) {
      if (tensor == "__metadata__" || facts == rounded.header[tensor]) continue;
      if (rounded.header[tensor]["dtype"] != "BF16" || facts["dtype"] != "F32") continue;
      ++trained;
      const int64_t at = facts["data_offsets"][0], to = facts["data_offsets"][1];
      const int64_t bf16 = rounded.header[tensor]["data_offsets"][0];
      for (int64_t i = 0; i < (to - at) / 4; ++i) {
        float value = 0, stored = 0;
        std::memcpy(&value, masters.data.data() + at + 4 * i, 4);
        std::memcpy(reinterpret_cast<char*>(&stored) + 2, rounded.data.data() + bf16 + 2 * i, 2);
        // bfloat16 has 8 significant bits: half a unit of the last is 2^-9 of the value, at most.
        ASSERT_NEAR(value, stored, std::abs(value) / 256) << tensor;
      }
    }
  }
  EXPECT_GT(trained, 10);
  EXPECT_THAT(place.succeed(1, "inspect masters").out, HasSubstr("F32"));
  // What readers of the folder go by.
  const auto index = Json::parse(read_file(place / "masters/model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], bytes);
  const auto config = Json::parse(read_file(place / "masters/config.json"));
  EXPECT_EQ(config["text_config"]["dtype"], "float32");
}

TEST_F(Dumped, AnotherCheckpointIsRefused) {
  edit_json(place / "model/config.json", [](Json& config) { config["note"] = "changed"; });
  const Outcome outcome = place.run(2, "export run/dumps/latest -o out");
  EXPECT_EQ(outcome.status, 1);
  ASSERT_EQ(outcome.errors().size(), 1u);
  EXPECT_THAT(outcome.errors()[0], HasSubstr("of another model"));
  EXPECT_FALSE(fs::exists(place / "out"));
  fs::remove_all(place / "model");
  const Outcome gone = place.run(2, "export run/dumps/latest -o out");
  EXPECT_EQ(gone.status, 1);
  EXPECT_THAT(gone.errors(), ElementsAre(HasSubstr("name that folder by --checkpoint")));
  place.copy_model("hybrid_tied_bf16", "moved");
  place.succeed(2, "export run/dumps/latest -o out --checkpoint moved");
  EXPECT_TRUE(fs::exists(place / "out/longstraw.json"));
}

}  // namespace
}  // namespace longstraw::program
