// Damaged and hostile dumps: each is refused, naming the file and, for damage in its content, the
// dataset (trial 27), or the damage is without meaning: everything reads back as it was written.
// LONGSTRAW_FLIPS: how many places are flipped, of 60.
#include "longstraw/core/log.hpp"
#include "longstraw/io/dump.hpp"
#include "longstraw/io/dump_description.hpp"
#include "longstraw/sim/run.hpp"
#include "support/errors.hpp"
#include "support/temporary_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>

#include <sys/stat.h>

namespace longstraw {
namespace {

namespace fs = std::filesystem;
using support::get;
using support::put;
using support::Refusal;
using support::refusal_of;
using support::TemporaryFolder;
using testing::HasSubstr;

// A dump of the middle of a walk with two segments of its prompt, and one that a longer run wrote.
class DumpFiles : public testing::Test {
 protected:
  DumpFiles() {
    log_speaks(false);
    write_run("run", 5), write_run("other", 6);
    dump_ =
        (fs::path(folder_ / "run/dumps") / fs::read_symlink(folder_ / "run/dumps/latest")).string();
    const DumpReader reader(dump_, grid_);
    for (const auto& segment : reader.segments()) files_.push_back(segment->path());
    files_.push_back(dump_);
    for (const auto& file : files_) bytes_[file] = get(file);
    content_ = content_of(reader);
    grid_.barrier();
  }
  ~DumpFiles() override { log_speaks(true); }

  // Until its capture is over, with a dump after every third of six blocks.
  void write_run(const std::string& name, int seed) {
    folder_.prepare([&] {
      std::string prompt = "5";
      for (int i = 1; i < 49; ++i) prompt += str(", {}", (i * seed + i * i) % 60);
      put(folder_ / (name + ".jsonl"),
          str(R"({{"id": "g", "prompt": [{}], "responses": [{{"id": "a", "ids": [1, 2, 3], )"
              R"("reward": 1}}, {{"id": "b", "ids": [4, 5], "reward": 0}}]}})",
              prompt) +
              "\n");
    });
    Deck deck(str("[model]\ncheckpoint = {}/golden/hybrid/model\n[rollouts]\nfile = {}\n"
                  "[parallel]\nblock_tokens = 8\npage_tokens = 5\n"
                  "[dump]\nevery_ticks = 3\nat_exit = false\n",
                  LONGSTRAW_TEST_DATA, folder_ / (name + ".jsonl")),
              "deck.ini");
    const Settings settings = read_settings(deck);
    Problem problem = open_problem(settings, grid_);
    problem.deck = deck.completed();
    EXPECT_EQ(run(problem, {.folder = folder_ / name}, Signals(), grid_), RunResult::finished);
    grid_.barrier();
  }

  // All that the reader gives, as text.
  static std::string content_of(const DumpReader& reader) {
    std::string content;
    const auto add = [&](const DumpFileReader& file) {
      for (const char* name : {"format_text", "program", "segments"})
        if (std::string(name) != "format_text" && (&file == &reader.file() || name[0] == 'p'))
          content += file.attribute(name) + "\n";
      for (const auto& path : file.paths()) {
        content +=
            str("{} {} {} {} {} {}:", path, file.meaning(path), file.stored_sum(path),
                file.first_row(path), file.is_reference(path), fmt::join(file.extents(path), " "));
        if (!file.is_reference(path)) content += value_of(file, path);
        content += "\n";
      }
    };
    add(reader.file());
    for (const auto& segment : reader.segments()) add(*segment);
    return content;
  }
  static std::string value_of(const DumpFileReader& file, const std::string& path) {
    if (refusal_of([&] { file.number(path); }).message.empty()) return str("{}", file.number(path));
    if (refusal_of([&] { file.text(path); }).message.empty()) return file.text(path);
    const auto values = h5::read_all(h5::open_file(file.path()), path);
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof values[0]};
  }

  // What opening the dump says while `change` was done to the bytes of `file`; nothing: all is read
  // as it was.
  Refusal refusal_with(const std::string& file,
                       const std::function<void(std::string& bytes)>& change) {
    folder_.prepare([&] {
      std::string bytes = bytes_[file];
      change(bytes);
      put(file, bytes);
    });
    return refusal_and_mend(file);
  }
  // The same while `change` was done through HDF5, with the checksum of the facts made right.
  Refusal refusal_after(const std::string& file,
                        const std::function<void(const h5::File&)>& change) {
    folder_.prepare([&] {
      const h5::File open = h5::modify_file(file);
      change(open);
      uint64_t sum = 0;  // of facts so bad that there is no sum, none
      refusal_of([&] { sum = described_sum(open); });
      h5::set_attribute(open, "/", "metadata_checksum", static_cast<int64_t>(sum));
    });
    return refusal_and_mend(file);
  }
  Refusal refusal_and_mend(const std::string& file) {
    std::string found;
    const Refusal refusal = refusal_of([&] { found = content_of(DumpReader(dump_, grid_)); });
    if (refusal.message.empty()) {
      EXPECT_TRUE(found == content_) << "read as something else";
    } else {
      EXPECT_TRUE(refusal.everywhere) << refusal.message;
      EXPECT_THAT(refusal.message, HasSubstr(fs::path(file).filename().string()));
    }
    folder_.prepare([&] {
      fs::remove(file);
      put(file, bytes_[file]);
    });
    return refusal;
  }

  // Where the content of a file's datasets lies: begin, end, name.
  struct Place {
    size_t begin, end;
    std::string name;
  };
  static std::vector<Place> places_in(const std::string& file) {
    std::vector<Place> places;
    const h5::File open = h5::open_file(file);
    for (const auto& path : dataset_paths(open)) {
      const h5::Dataset set(H5Dopen2(open, path.c_str(), H5P_DEFAULT), path);
      const haddr_t begin = H5Dget_offset(set);
      if (begin != HADDR_UNDEF) places.push_back({begin, begin + H5Dget_storage_size(set), path});
    }
    return places;
  }

  TemporaryFolder folder_;
  Grid grid_ = Grid::world();
  std::string dump_;
  std::vector<std::string> files_;
  std::map<std::string, std::string> bytes_;
  std::string content_;
};

TEST_F(DumpFiles, AFlippedBitIsRefusedOrWithoutMeaning) {
  const char* wanted = std::getenv("LONGSTRAW_FLIPS");
  const int flips = wanted == nullptr ? 60 : std::atoi(wanted);
  ASSERT_EQ(files_.size(), 3u) << "two segments and the dump";
  std::mt19937_64 random(20);
  std::map<std::string, int> counts;
  for (int i = 0; i < flips; ++i) {
    const std::string& file = files_[random() % files_.size()];
    const auto places = places_in(file);
    size_t at = random() % bytes_[file].size();
    // Most bytes are of the largest datasets: half of the flips are elsewhere.
    const bool in_content = random() % 2 == 0;
    const auto holds = [&](const Place& place) { return at >= place.begin && at < place.end; };
    if (in_content) {
      const Place& place = places[random() % places.size()];
      at = place.begin + random() % (place.end - place.begin);
    } else {
      while (std::any_of(places.begin(), places.end(), holds)) at = random() % bytes_[file].size();
    }
    const auto bit = static_cast<char>(1 << random() % 8);
    SCOPED_TRACE(str("{}, byte {}, bit {:#x}", file, at, bit));
    const Refusal refusal = refusal_with(file, [&](std::string& bytes) { bytes[at] ^= bit; });
    const auto place = std::find_if(places.begin(), places.end(), holds);
    ++counts[str("{}, {}", place == places.end() ? "structure" : "content",
                 refusal.message.empty() ? "without meaning" : "refused")];
    if (place != places.end()) {
      EXPECT_THAT(refusal.message, HasSubstr(place->name));
    }
  }
  if (grid_.rank() == 0)
    for (const auto& [what, count] : counts) RecordProperty(what, count);
  EXPECT_EQ(counts["content, without meaning"], 0);
  EXPECT_GT(counts["content, refused"], flips / 4);
  EXPECT_GT(counts["structure, refused"], 0);
}

TEST_F(DumpFiles, CutOrLongerOnesAreRefusedOrWithoutMeaning) {
  for (const auto& file : files_) {
    const size_t size = bytes_[file].size();
    for (const size_t left : {size_t{0}, size_t{1}, size_t{7}, size_t{48}, size_t{600}, size / 3,
                              size / 2, size - 4096, size - 1}) {
      const auto refusal = refusal_with(file, [&](std::string& bytes) { bytes.resize(left); });
      EXPECT_THAT(refusal.message, HasSubstr(file)) << left << " of " << size << " bytes";
    }
    for (const size_t more : {1, 4096})
      refusal_with(file, [&](std::string& bytes) { bytes.append(more, 'x'); });
    const auto zeros =
        refusal_with(file, [&](std::string& bytes) { bytes.assign(bytes.size(), '\0'); });
    EXPECT_THAT(zeros.message, HasSubstr("no whole dump"));
    EXPECT_THAT(refusal_with(file, [](std::string& bytes) { bytes = "[deck]\n"; }).message,
                HasSubstr("no whole dump"));
  }
}

TEST_F(DumpFiles, MissingAndMistakenSegmentsAreRefused) {
  const std::string segment = files_[0], name = fs::path(segment).filename().string();
  const auto opening = [&] { return refusal_of([&] { DumpReader(dump_, grid_); }); };
  folder_.prepare([&] { fs::remove(segment); });
  support::expect_parts(opening().message, {dump_, segment, "missing"});
  // Never ends when it is opened.
  folder_.prepare([&] { ::mkfifo(segment.c_str(), 0600); });
  support::expect_parts(opening().message, {segment, "no regular file"});
  folder_.prepare([&] { fs::remove(segment), fs::create_directory(segment); });
  support::expect_parts(opening().message, {segment, "no regular file"});
  // Whole in itself.
  folder_.prepare([&] {
    fs::remove(segment);
    fs::copy(folder_ / "other/dumps/" + name, segment);
  });
  support::expect_parts(opening().message, {dump_, "prompt/rows", name, "checksum"});
  EXPECT_TRUE(opening().everywhere);
}

TEST_F(DumpFiles, OtherFormatsAreRefusedNamingBoth) {
  for (const int64_t format : {int64_t{0}, int64_t{99}, int64_t{-1}}) {
    const auto refusal = refusal_after(
        dump_, [&](const h5::File& file) { h5::set_attribute(file, "/", "format", format); });
    support::expect_parts(refusal.message, {str("format {},", format), "formats 1 to 1",
                                            "use the program that wrote it (LongStraw 0."});
  }
}

// ---- made to do harm, their checksum of names, extents and attributes being right

void replace_text(const h5::File& file, const char* name, const std::string& value) {
  h5::check_h5(H5Adelete(file, name), name);
  h5::write_attribute(file, name, value);
}

hid_t plain_set(const h5::File& file, const char* name, hid_t type,
                const std::vector<hsize_t>& extents, H5D_alloc_time_t when) {
  const h5::Space space(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr),
                        "extents");
  const h5::Properties properties(H5Pcreate(H5P_DATASET_CREATE), "properties");
  H5Pset_alloc_time(properties, when);
  const hid_t set =
      h5::check_h5(H5Dcreate2(file, name, type, space, H5P_DEFAULT, properties, H5P_DEFAULT), name);
  h5::write_attribute(set, "meaning", "harm");
  h5::write_attribute(set, "checksum", int64_t{0});
  return set;
}

TEST_F(DumpFiles, HostileSegmentListsAreRefused) {
  const std::string one = fs::path(files_[0]).filename().string();
  for (const std::string& list :
       {std::string("../../other/dumps/x.h5"), std::string("/etc/passwd"), std::string(".."),
        std::string("."), std::string("nothing.h5"), one, one + " " + one,
        fs::path(dump_).filename().string(), std::string(3 << 20, 'x'), std::string()}) {
    const auto refusal = refusal_after(dump_, [&](const h5::File& file) {
      // Long ones do not fit into an attribute of this file.
      refusal_of([&] { replace_text(file, "segments", list); });
    });
    EXPECT_NE(refusal.message, "") << list.substr(0, 100);
  }
}

TEST_F(DumpFiles, HostileExtentsAndTypesAreRefused) {
  const auto with_set = [&](hid_t type, const std::vector<hsize_t>& extents) {
    return refusal_after(dump_, [&](const h5::File& file) {
      H5Ldelete(file, "cursor/step", H5P_DEFAULT);
      const h5::Dataset set(plain_set(file, "cursor/step", type, extents, H5D_ALLOC_TIME_LATE),
                            "set");
    });
  };
  const hsize_t huge = hsize_t{1} << 60;
  for (const auto& extents : {std::vector<hsize_t>{huge}, {1 << 20, 1 << 20}, {hsize_t{1} << 33}}) {
    support::expect_parts(with_set(H5T_NATIVE_DOUBLE, extents).message,
                          {"cursor/step", "does not hold"});
  }
  support::expect_parts(with_set(H5T_NATIVE_DOUBLE, {4}).message, {"cursor/step", "does not hold"});
  support::expect_parts(with_set(H5T_NATIVE_INT, {1}).message, {"cursor/step", "neither"});
  const h5::Type text(H5Tcopy(H5T_C_S1), "type");
  H5Tset_size(text, H5T_VARIABLE);
  support::expect_parts(with_set(text, {1}).message, {"cursor/step", "neither"});
  const h5::Type long_text(H5Tcopy(H5T_C_S1), "type");
  H5Tset_size(long_text, size_t{1} << 31);
  support::expect_parts(with_set(long_text, {1}).message, {"cursor/step", "neither"});
}

// Would be read over the end of one number.
TEST_F(DumpFiles, ListsInPlaceOfNumbersAreRefused) {
  const auto refusal = refusal_after(dump_, [](const h5::File& file) {
    H5Ldelete(file, "cursor/step", H5P_DEFAULT);
    const h5::Dataset set(
        plain_set(file, "cursor/step", H5T_NATIVE_INT64, {512}, H5D_ALLOC_TIME_EARLY), "set");
    const std::vector<int64_t> values(512, 7);
    H5Dwrite(set, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
  });
  support::expect_parts(refusal.message, {"cursor/step", "neither"});
  const auto attribute = refusal_after(dump_, [](const h5::File& file) {
    H5Adelete(file, "format");
    const hsize_t many = 512;
    const h5::Space space(H5Screate_simple(1, &many, nullptr), "space");
    const std::vector<int64_t> values(many, 1);
    const h5::Attribute made(
        H5Acreate2(file, "format", H5T_NATIVE_INT64, space, H5P_DEFAULT, H5P_DEFAULT), "format");
    H5Awrite(made, H5T_NATIVE_INT64, values.data());
  });
  support::expect_parts(attribute.message, {"format", "not one value"});
}

TEST_F(DumpFiles, LinksAreRefused) {
  const std::string other = folder_ / "other/dumps/latest";
  for (const auto& make : std::vector<std::function<void(const h5::File&)>>{
           [](const h5::File& f) { H5Lcreate_hard(f, "/", f, "cursor/loop", H5P_DEFAULT, 0); },
           [](const h5::File& f) { H5Lcreate_hard(f, "cursor", f, "again", H5P_DEFAULT, 0); },
           [](const h5::File& f) { H5Lcreate_soft("cursor", f, "again", H5P_DEFAULT, 0); },
           [&](const h5::File& f) {
             H5Lcreate_external(other.c_str(), "cursor", f, "again", H5P_DEFAULT, 0);
           }}) {
    const auto refusal = refusal_after(dump_, make);
    EXPECT_THAT(refusal.message, HasSubstr("no dump of ours has that"));
  }
}

TEST_F(DumpFiles, HostileRowsAreRefused) {
  for (const int64_t row : {int64_t{-1}, int64_t{1} << 62, int64_t{1}}) {
    const auto refusal = refusal_after(files_[1], [&](const h5::File& file) {
      for (const auto& path : dataset_paths(file))
        if (path.starts_with("prompt/rows")) h5::set_attribute(file, path, "first_row", row);
    });
    support::expect_parts(refusal.message, {"prompt/rows"});
  }
}

}  // namespace
}  // namespace longstraw
