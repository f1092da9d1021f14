// Dumps whose checksums are right and whose numbers and texts were made to do harm: a restart
// refuses each, naming the dump and what is wrong, or the value is one that a dump can have, and
// the run finishes.
#include "longstraw/core/log.hpp"
#include "longstraw/io/checksum.hpp"
#include "longstraw/io/dump_description.hpp"
#include "longstraw/io/dump_file.hpp"
#include "longstraw/sim/run.hpp"
#include "support/errors.hpp"
#include "support/temporary_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <map>
#include <set>

namespace longstraw {
namespace {

namespace fs = std::filesystem;
using support::get;
using support::put;
using support::Refusal;
using support::refusal_of;
using support::TemporaryFolder;

// Replaces the dataset at `path` by one with these bytes and the checksum that belongs to them.
void replace(const h5::File& file, const std::string& path, hid_t type, const void* values,
             const std::vector<hsize_t>& extents, int64_t element_bytes) {
  h5::check_h5(H5Ldelete(file, path.c_str(), H5P_DEFAULT), path);
  const h5::Space space(
      extents.empty() ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, extents.data(), nullptr), path);
  const h5::Dataset set(
      H5Dcreate2(file, path.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), path);
  h5::check_h5(H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values), path);
  h5::write_attribute(set, "meaning", "harm");
  const auto elements = extents.empty() ? (H5Tget_size(type) / element_bytes) : extents[0];
  h5::write_attribute(
      set, "checksum",
      static_cast<int64_t>(content_sum(values, static_cast<int64_t>(elements), element_bytes, 0)));
}

void replace(const h5::File& file, const std::string& path, int64_t value) {
  replace(file, path, H5T_NATIVE_INT64, &value, {}, sizeof value);
}
void replace(const h5::File& file, const std::string& path, const std::string& value) {
  replace(file, path, h5::text_type(value), value.c_str(), {}, 1);
}
void replace(const h5::File& file, const std::string& path, const std::vector<double>& values) {
  replace(file, path, H5T_NATIVE_DOUBLE, values.data(), {values.size()}, sizeof(double));
}

// A run of two steps with a dump before each tick: captures, long and short replays, a response
// that is only scored, a walk, and log-probabilities that the second step takes from the first.
class HostileDumps : public testing::Test {
 protected:
  HostileDumps() {
    log_speaks(false);
    folder_.prepare([&] { put(folder_ / "rollouts.jsonl", rollouts()); });
    const Problem whole = opened("every_ticks = 1\nkeep = 1000\n");
    EXPECT_EQ(run(whole, {.folder = folder_ / "whole"}, Signals(), grid_), RunResult::finished);
    problem_.emplace(opened("at_exit = false\n"));
    for (const auto& entry : fs::directory_iterator(folder_ / "whole/dumps"))
      if (entry.path().filename().string().starts_with("dump-")) dumps_.insert(entry.path());
    grid_.barrier();
  }
  ~HostileDumps() override { log_speaks(true); }

  static std::string rollouts() {
    const auto list = [](int count, int seed) {
      std::string ids;
      for (int i = 0; i < count; ++i) ids += str("{}{}", i == 0 ? "" : ",", (i * seed + i) % 60);
      return ids;
    };
    const auto response = [&](const char* id, int tokens, double reward) {
      return str(R"({{"id":"{}","ids":[{}],"reward":{}}})", id, list(tokens, tokens), reward);
    };
    return str(R"({{"id":"g","prompt":[{}],"responses":[{},{},{}]}})", list(41, 7),
               response("a", 3, 1), response("b", 20, 0), response("c", 9, 0.5)) +
           "\n";
  }

  Problem opened(const std::string& dumps) const {
    Deck deck(str("[model]\ncheckpoint = {}/golden/hybrid/model\n[rollouts]\nfile = {}\n"
                  "epochs = 2\n[objective]\nold_logprobs = computed\n"
                  "[gradient]\nprompt_checkpoint_every = 2\n"
                  "[parallel]\nblock_tokens = 8\npage_tokens = 5\n"
                  "[dump]\nevery_seconds = 0\n{}",
                  LONGSTRAW_TEST_DATA, folder_ / "rollouts.jsonl", dumps),
              "deck.ini");
    const Settings settings = read_settings(deck);
    Problem problem = open_problem(settings, grid_);
    problem.deck = deck.completed();
    return problem;
  }

  // The last dump before a tick of each kind.
  std::map<int64_t, std::string> of_each_kind() const {
    std::map<int64_t, std::string> found;
    for (const auto& dump : dumps_) found[DumpFileReader(dump).number("cursor/kind")] = dump;
    return found;
  }

  std::string within_the_second_step() const {
    for (const auto& dump : dumps_) {
      const DumpFileReader reader(dump);
      if (reader.number("cursor/step") == 1 && reader.number("cursor/between_steps") == 0)
        return dump;
    }
    return "none";
  }

  std::map<std::string, int64_t> numbers_of(const std::string& dump) const {
    std::map<std::string, int64_t> numbers;
    {
      const DumpFileReader reader(dump);
      const h5::File file = h5::open_file(dump);
      for (const auto& path : reader.paths()) {
        const h5::Dataset set(H5Dopen2(file, path.c_str(), H5P_DEFAULT), path);
        const h5::Type type(H5Dget_type(set), path);
        if (H5Tget_class(type) == H5T_INTEGER) numbers[path] = reader.number(path);
      }
    }
    grid_.barrier();  // closed by all before it is changed
    return numbers;
  }

  // What a restart says from `dump` with `change` done to it, its checksums being right.
  template <class Change>
  Refusal refusal_after(const std::string& dump, const Change& change) {
    const std::string bytes = get(dump);
    folder_.prepare([&] {
      fs::remove_all(folder_ / "again");
      h5::File file = h5::modify_file(dump);
      change(file);
      h5::set_attribute(file, "/", "metadata_checksum", static_cast<int64_t>(described_sum(file)));
      file.reset("cannot close " + dump);
    });
    RunResult result = RunResult::finished;
    const Refusal refusal = refusal_of([&] {
      result = run(*problem_, {.folder = folder_ / "again", .restart = {Restart::file, dump}},
                   Signals(), grid_);
    });
    EXPECT_EQ(result, RunResult::finished);
    if (!refusal.message.empty()) {
      EXPECT_TRUE(refusal.everywhere) << refusal.message;
      EXPECT_THAT(refusal.message, testing::HasSubstr(dump));
    }
    folder_.prepare([&] {
      fs::remove(dump);
      put(dump, bytes);
    });
    return refusal;
  }

  void expect_text_refused(const std::string& dump, const std::string& path,
                           const std::string& text) {
    const auto refusal =
        refusal_after(dump, [&](const h5::File& file) { replace(file, path, text); });
    support::expect_parts(refusal.message, {path + " is damaged: "});
    EXPECT_EQ(refusal.status, 1);
  }

  TemporaryFolder folder_;
  Grid grid_ = Grid::world();
  std::optional<Problem> problem_;
  std::set<std::string> dumps_;
};

// Far values that another dump could have.
bool is_legal(const std::string& path, int64_t value) {
  return value > 0 && (path == "cursor/ticks" || path == "step/first_nonfinite");
}

TEST_F(HostileDumps, NumbersAreRefused) {
  const std::set<int64_t> far = {-1, int64_t{1} << 40};
  int refused = 0, finished = 0;
  for (const auto& [kind, dump] : of_each_kind()) {
    for (const auto& [path, was] : numbers_of(dump)) {
      // As near as this one, some are those of a dump of another place.
      std::set<int64_t> values = {was + 1};
      values.insert(far.begin(), far.end());
      for (const int64_t value : values) {
        SCOPED_TRACE(str("{}: {} = {}, was {}", dump, path, value, was));
        const auto refusal =
            refusal_after(dump, [&](const h5::File& file) { replace(file, path, value); });
        ++(refusal.message.empty() ? finished : refused);
        if (far.contains(value) && path != "group/checkpoint_every") {
          EXPECT_EQ(refusal.message.empty(), is_legal(path, value)) << refusal.message;
        }
        if (!refusal.message.empty() && far.contains(value)) {
          EXPECT_THAT(refusal.message,
                      testing::ContainsRegex(path + "|its cursor|is after step|prompt/starts"));
        }
      }
    }
  }
  if (grid_.rank() == 0) RecordProperty("refused", refused), RecordProperty("finished", finished);
  EXPECT_GT(refused, 200);
  EXPECT_GT(finished, 10);
}

TEST_F(HostileDumps, TextsAndListsAreRefused) {
  const std::string dump = *dumps_.rbegin(), within = within_the_second_step();
  const std::string deep = std::string(100'000, '[');
  for (const char* text :
       {"", "{", "[]", "{}", R"({"seconds": 1, "seconds": 1})", R"({"seconds": {"capture": "1"}})",
        R"({"seconds":{"capture":0,"dump":0,"prompt_backward":0,"replay":0,"score":0,"update":0},)"
        R"("bytes_peak":{"total":1e300},"restarts":[]})",
        R"({"seconds":{"capture":0,"dump":0,"prompt_backward":0,"replay":0,"score":0,"update":0},)"
        R"("bytes_peak":{"total":18446744073709551615},"restarts":[]})",
        R"({"seconds":{"capture":0,"dump":0,"prompt_backward":0,"replay":0,"score":0,"update":0},)"
        R"("bytes_peak":{"total":1},"restarts":[7]})",
        deep.c_str()})
    expect_text_refused(within, "step/report", text);
  for (const char* text :
       {"", "[", "7", "{}", "[1]", "[[]]", R"([["a"]])", R"([["a",-1]])", R"([["a",1e300]])",
        R"([["a",3.0]])", R"([["a",9223372036854775807]])", R"([["a",18446744073709551615]])",
        R"([[1,3],["b",20],["c",9]])", R"([["a",33]])", R"([["a",3],["a",29]])", deep.c_str()})
    for (const char* path : {"logprobs/first_responses", "logprobs/latest_responses"})
      expect_text_refused(within, path, text);
  const auto deck = refusal_after(
      dump, [](const h5::File& file) { replace(file, "deck", std::string("no deck")); });
  support::expect_parts(deck.message, {"its deck is damaged: ", "'no deck'"});
  const auto digest = refusal_after(
      dump, [](const h5::File& file) { replace(file, "model/digest", std::string(1 << 20, 'x')); });
  support::expect_parts(digest.message, {"another model"});
  // Lists: as many in all, but not of each response; and other lengths.
  for (const char* path : {"logprobs/first_responses", "logprobs/latest_responses"}) {
    const auto refusal = refusal_after(within, [&](const h5::File& file) {
      replace(file, path, std::string(R"([["a",2],["b",21],["c",9]])"));
    });
    support::expect_parts(refusal.message,
                          {"2 log-probabilities of response a, which has 3 tokens"});
  }
  for (const char* path : {"logprobs/first", "step/ratio_max"})
    for (const std::vector<double>& values : {std::vector<double>(2), std::vector<double>(1000)}) {
      const auto refusal =
          refusal_after(within, [&](const h5::File& file) { replace(file, path, values); });
      support::expect_parts(refusal.message, {path});
    }
}

}  // namespace
}  // namespace longstraw
