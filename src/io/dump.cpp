#include "longstraw/io/dump.hpp"

#include "longstraw/core/field.hpp"

#include <algorithm>
#include <filesystem>
#include <sstream>

namespace longstraw {
namespace {

constexpr size_t longest_name = 100;
// A reader has all of them open; with more, a dump puts all rows into a new one.
constexpr size_t most_files = 64;

// The part of the pieces of an array that lies in elements `range`, placed from its start.
std::vector<DumpPiece> inside(std::span<const DumpPiece> pieces, Range range) {
  std::vector<DumpPiece> parts;
  for (const DumpPiece& piece : pieces) {
    const int64_t begin = std::max(piece.first, range.begin);
    const int64_t end = std::min(piece.first + piece.values.size(), range.end);
    if (begin >= end) continue;
    const Tensor flat = piece.values.reshape({piece.values.size()});
    parts.push_back({.first = begin - range.begin,
                     .values = flat.rows(begin - piece.first, end - piece.first),
                     .own = piece.own});
  }
  return parts;
}

std::string file_name(const std::string& life, int64_t ticks) {
  return str("{}-{:08}.h5", life, ticks);
}

// Of a run that went back, later dumps may still refer to a file that it would write anew.
std::string unused_name(const std::string& folder, const std::string& name, const Grid& grid) {
  std::string unused = name;
  std::error_code failed;
  for (int i = 2; grid.rank() == 0 && std::filesystem::exists(folder + "/" + unused, failed); ++i)
    unused = str("{}-{}.h5", name.substr(0, name.size() - 3), i);
  return grid.broadcast(unused, 0);
}

}  // namespace

// ---- writing

DumpWriter::DumpWriter(const std::string& folder, int64_t ticks, const Grid& grid,
                       GrownArrays stored)
    : folder_(folder),
      name_(file_name("dump", ticks)),
      ticks_(ticks),
      grid_(grid),
      stored_(std::move(stored)),
      main_(folder + "/" + name_, grid) {}

void DumpWriter::number(const std::string& path, int64_t& value, Limits limits,
                        std::string_view meaning) {
  LONGSTRAW_ASSERT(limits.least <= value && value <= limits.most);
  main_.number(path, value, meaning);
}

void DumpWriter::text(const std::string& path, std::string& value, std::string_view meaning) {
  main_.text(path, value, meaning);
}

void DumpWriter::numbers(const std::string& path, std::vector<double>& values,
                         std::string_view meaning) {
  main_.numbers(path, values, meaning);
}

void DumpWriter::placed(const DumpArray& array, std::span<const DumpPiece> pieces) {
  main_.array(array, pieces);
}

void DumpWriter::contributed(const DumpArray& array, std::span<const DumpPiece> pieces) {
  main_.contributions(array, pieces);
}

void DumpWriter::grown(const DumpArray& array, std::span<const DumpPiece> pieces,
                       const std::string& life) {
  refers_ = true;
  const bool full = !segment_ && stored_.files.size() >= most_files;
  if (stored_.life != life || full) stored_ = {.life = life, .files = {}, .arrays = {}};
  const int64_t rows = array.extents.at(0), stored = stored_.arrays[array.path].rows;
  if (rows > stored) {
    write_rows(array, pieces, stored);
    stored_.arrays[array.path].rows = rows;
  }
  main_.reference(array);
}

void DumpWriter::write_rows(const DumpArray& array, std::span<const DumpPiece> pieces,
                            int64_t stored) {
  if (!segment_) {
    stored_.files.push_back(unused_name(folder_, file_name(stored_.life, ticks_), grid_));
    segment_ = std::make_unique<DumpFileWriter>(folder_ + "/" + stored_.files.back(), grid_);
  }
  const int64_t rows = array.extents[0], width = row_elements_of(array.extents);
  DumpArray fresh = array;
  fresh.extents[0] = rows - stored;
  segment_->array(fresh, inside(pieces, {stored * width, rows * width}), stored);
}

GrownArrays DumpWriter::complete() {
  if (!refers_) stored_ = {};
  if (segment_)
    for (const auto& [path, sum] : segment_->complete()) stored_.arrays[path].sum += sum;
  for (const auto& [path, array] : stored_.arrays) main_.set_sum(path, array.sum);
  main_.attribute("segments", str("{}", fmt::join(stored_.files, " ")));
  try {
    main_.complete();
  } catch (const Error&) {
    // Nothing refers to it, and a full disk needs the room.
    std::error_code ignored;
    if (segment_ && grid_.rank() == 0)
      std::filesystem::remove(folder_ + "/" + stored_.files.back(), ignored);
    throw;
  }
  return stored_;
}

// ---- reading

DumpReader::DumpReader(const std::string& path, const Grid& grid, Content content) : grid_(grid) {
  // A damaged file is found on rank 0, before all ranks open it.
  for (int turn = 0; turn < 2; ++turn)
    agree(grid, [&] {
      if (turn == (grid.rank() == 0 ? 1 : 0)) return;
      main_ = std::make_unique<DumpFileReader>(path);
      require(main_->has("cursor/kind") && main_->has_attribute("segments"),
              "{} is a part of dumps, with rows of a prompt's state, or no dump - name a dump",
              path);
      open_segments(content);
    });
  if (content != Content::unchecked) check_content(content);
}

void DumpReader::open_segments(Content content) {
  const std::string& path = main_->path();
  std::istringstream names(main_->attribute("segments"));
  for (std::string name; names >> name;) {
    require(name.find('/') == std::string::npos && name.size() < longest_name,
            "{} refers to {}, outside its folder", path, name.substr(0, longest_name));
    const std::string file = (std::filesystem::path(path).parent_path() / name).string();
    std::error_code failed;
    if (!std::filesystem::exists(file, failed)) {
      require(content != Content::checked,
              "{} needs {}, which is missing - copy it from where the dump was written", path,
              file);
      missing_.push_back(file);
      continue;
    }
    try {
      segments_.push_back(std::make_unique<DumpFileReader>(file));
    } catch (const Error& error) {
      throw Error(str("{} needs {}", path, error.what()));
    }
    stored_.files.push_back(name);
  }
}

// Every rank sums its part of every dataset.
void DumpReader::check_content(Content content) const {
  std::vector<std::string> places;
  std::vector<uint64_t> stored, found;
  agree(grid_, [&] {
    std::map<std::string, uint64_t> in_segments;
    const std::string kept = str(", kept in {},", fmt::join(stored_.files, ", "));
    const auto check = [&](const DumpFileReader& file, const std::string& path, uint64_t sum) {
      places.push_back(str("{}: dataset {}{}", file.path(), path,
                           file.is_reference(path) ? kept : std::string()));
      stored.push_back(file.stored_sum(path));
      found.push_back(sum);
    };
    const auto sum_of = [&](const DumpFileReader& file, const std::string& path) {
      return file.computed_sum(path, grid_.size(), grid_.rank());
    };
    if (content == Content::checked)
      for (const auto& segment : segments_)
        for (const auto& path : segment->paths()) {
          const uint64_t sum = sum_of(*segment, path);
          in_segments[path] += sum;
          check(*segment, path, sum);
        }
    for (const auto& path : main_->paths()) {
      const bool elsewhere = main_->is_reference(path);
      if (elsewhere && content != Content::checked) continue;
      check(*main_, path, elsewhere ? in_segments[path] : sum_of(*main_, path));
    }
  });
  grid_.sum(found);
  agree(grid_, [&] {
    for (size_t i = 0; i < places.size(); ++i)
      require(found[i] == stored[i], "{} does not match its checksum: it is damaged", places[i]);
  });
}

void DumpReader::number(const std::string& path, int64_t& value, Limits limits, std::string_view) {
  agree(grid_, [&] {
    const int64_t found = main_->number(path);
    require(limits.least <= found && found <= limits.most, "{}: {} is {}, not {}{}", main_->path(),
            path, found, limits.least,
            limits.least == limits.most ? "" : str(" to {}", limits.most));
    value = found;
  });
}

void DumpReader::text(const std::string& path, std::string& value, std::string_view) {
  agree(grid_, [&] { value = main_->text(path); });
}

void DumpReader::numbers(const std::string& path, std::vector<double>& values, std::string_view) {
  agree(grid_, [&] { values = main_->numbers(path); });
}

void DumpReader::check_extents(const DumpFileReader& file, const std::string& path,
                               const std::vector<int64_t>& extents) const {
  const auto found = file.extents(path);
  require(found == extents, "{}: {} has extents [{}], this run needs [{}]", file.path(), path,
          fmt::join(found, ", "), fmt::join(extents, ", "));
}

void DumpReader::placed(const DumpArray& array, std::span<const DumpPiece> pieces) {
  agree(grid_, [&] {
    check_extents(*main_, array.path, array.extents);
    for (const DumpPiece& piece : pieces) main_->read(array.path, piece.first, piece.values);
  });
}

void DumpReader::grown(const DumpArray& array, std::span<const DumpPiece> pieces,
                       const std::string& life) {
  agree(grid_, [&] {
    const int64_t width = row_elements_of(array.extents);
    auto& stored = stored_.arrays[array.path];
    for (const auto& segment : segments_) {
      if (!segment->has(array.path)) continue;
      auto extents = segment->extents(array.path);
      require(extents.size() == array.extents.size(), "{}: {} has {} dimensions, not {}",
              segment->path(), array.path, extents.size(), array.extents.size());
      const int64_t first = segment->first_row(array.path), rows = extents.at(0);
      require(first == stored.rows, "{}: {} starts at row {}, not {}", segment->path(), array.path,
              first, stored.rows);
      stored.rows += rows;
      extents[0] = array.extents[0];
      require(extents == array.extents, "{}: {} has rows of other extents than this run's",
              segment->path(), array.path);
      for (const auto& part : inside(pieces, {first * width, (first + rows) * width}))
        segment->read(array.path, part.first, part.values);
    }
    require(stored.rows >= array.extents[0], "{}: {} has {} of {} rows", main_->path(), array.path,
            stored.rows, array.extents[0]);
    stored.sum = main_->stored_sum(array.path);
    stored_.life = life;
  });
}

void DumpReader::contributed(const DumpArray& array, std::span<const DumpPiece> pieces) {
  agree(grid_, [&] {
    const auto found = main_->extents(array.path);
    require(!found.empty() && found[0] > 0, "{}: {} has no contributions", main_->path(),
            array.path);
    auto extents = array.extents;
    extents.insert(extents.begin(), found[0]);
    check_extents(*main_, array.path, extents);
    const int64_t size = elements_of(array.extents);
    for (const DumpPiece& piece : pieces) {
      if (found[0] == grid_.size())
        main_->read(array.path, grid_.rank() * size + piece.first, piece.values);
      else if (piece.own)
        read_sum(array.path, piece, size, found[0]);
      else
        clear(piece.values);
    }
  });
}

// In the order of ranks, as the reduction would have added them.
void DumpReader::read_sum(const std::string& path, const DumpPiece& piece, int64_t size,
                          int64_t ranks) const {
  constexpr int64_t at_once = int64_t{1} << 20;
  const Tensor all = piece.values.reshape({piece.values.size()});
  std::vector<std::byte> buffer(std::min(at_once, all.size()) * size_of(all.type()));
  for (int64_t begin = 0; begin < all.size(); begin += at_once) {
    const Tensor to = all.rows(begin, std::min(begin + at_once, all.size()));
    const Tensor part(buffer.data(), to.type(), {to.size()});
    clear(to);
    for (int64_t r = 0; r < ranks; ++r) {
      main_->read(path, r * size + piece.first + begin, part);
      dispatch(to.type(), [&]<class T>(T) {
        for (int64_t i = 0; i < to.size(); ++i) to.data<T>()[i] += part.data<T>()[i];
      });
    }
  }
}

}  // namespace longstraw
