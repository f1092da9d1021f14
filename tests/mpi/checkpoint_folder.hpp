// A folder with a checkpoint in it, made for a test and damaged by it.
#pragma once

#include "longstraw/io/checkpoint.hpp"
#include "reference/golden.hpp"
#include "support/errors.hpp"
#include "support/safetensors_file.hpp"
#include "support/temporary_folder.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

namespace longstraw::support {

class CheckpointFolder : public testing::Test {
 protected:
  // Opens what `make` puts into an empty folder beside a config.json.
  template <class Make>
  Refusal refusal(Make&& make) {
    folder_.prepare([&] {
      std::filesystem::remove_all(model_);
      std::filesystem::create_directory(model_);
      put(model_ + "/config.json", "{}");
      make();
    });
    const auto found = refusal_of([&] { Checkpoint::open(model_, grid_); });
    EXPECT_TRUE(found.message.empty() || found.everywhere);
    return found;
  }
  // A copy of the golden case with two shards and an index, to be damaged.
  template <class Damage>
  Refusal damaged(Damage&& damage) {
    return refusal([&] {
      std::filesystem::copy(reference::Golden("hybrid_tied_bf16").model(), model_,
                            std::filesystem::copy_options::overwrite_existing |
                                std::filesystem::copy_options::recursive);
      damage();
    });
  }
  void write(const SafetensorsFile& file, const std::string& name = "model.safetensors") {
    put(model_ + "/" + name, file.text());
  }

  Grid grid_ = Grid::world();
  TemporaryFolder folder_;
  std::string model_ = folder_ / "model";
  const std::string first_ = "model-00001-of-00002.safetensors";
  const std::string second_ = "model-00002-of-00002.safetensors";
  const std::string index_ = "model.safetensors.index.json";
};

}  // namespace longstraw::support
