#include "longstraw/core/field.hpp"
#include "longstraw/core/json_check.hpp"
#include "longstraw/core/log.hpp"
#include "longstraw/core/transfer.hpp"
#include "longstraw/io/checkpoint.hpp"
#include "longstraw/io/file.hpp"
#include "longstraw/io/number_formats.hpp"
#include "longstraw/io/safetensors.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <span>

namespace longstraw {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr int64_t part_elements = int64_t{1} << 21;
constexpr int64_t copy_part = int64_t{8} << 20;
constexpr const char* config_file = "config.json";
// Its name while the weights are not complete: without a configuration nobody loads them.
constexpr const char* unready_config = "config.json.tmp";
// Weights in other formats, which would no longer match what we write.
constexpr std::array weight_suffixes = {".safetensors", ".bin",     ".pt",   ".pth",  ".ckpt",
                                        ".h5",          ".msgpack", ".gguf", ".onnx", ".tmp"};

template <class Act>
void checked(const std::string& what, Act&& act) {
  try {
    act();
  } catch (const fs::filesystem_error& error) {
    throw Error(str("{} ({})", what, error.what()));
  }
}

std::string without_slash(const std::string& path) {
  const auto normal = fs::absolute(path).lexically_normal();
  return (normal.has_filename() ? normal : normal.parent_path()).string();
}

// act(part) for the parts of `all` that are moved at a time.
template <class Act>
void for_each_part(Range all, int64_t part, const Act& act) {
  for (int64_t begin = all.begin; begin < all.end; begin += part)
    act(Range{begin, std::min(begin + part, all.end)});
}

void copy_file(const std::string& from, const std::string& to) {
  const auto source = DiskFile::open(from);
  auto copy = DiskFile::create(to);
  std::vector<std::byte> buffer;
  for_each_part({0, source.size()}, copy_part, [&](Range part) {
    buffer.resize(part.size());
    source.read(buffer.data(), part.size(), part.begin);
    copy.write(buffer.data(), part.size());
  });
  copy.sync();
}

bool holds_weights(const std::string& name) {
  return std::any_of(weight_suffixes.begin(), weight_suffixes.end(),
                     [&](std::string_view suffix) { return name.ends_with(suffix); });
}

// Everything of a checkpoint folder that is not weights: files, and the folder in which
// transformers keeps further chat templates. Other folders hold the same model in other formats.
void copy_companions(const std::string& from, const std::string& to) {
  for (const auto& entry : fs::directory_iterator(from)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(".") || name == origin_file || holds_weights(name)) continue;
    if (entry.is_regular_file()) copy_file(entry.path().string(), to + "/" + name);
    if (entry.is_directory() && name == "additional_chat_templates") {
      fs::create_directory(to + "/" + name);
      copy_companions(entry.path().string(), to + "/" + name);
    }
  }
}

// At most: a tensor that changes its type may become larger.
int64_t bytes_needed(const Checkpoint& source, const WriteType& type) {
  int64_t bytes = 0;
  for (const auto& file : source.files())
    bytes += DiskFile::open(source.folder() + "/" + file).size();
  if (type.stored_as == StoredAs::computed)
    for (const auto& [name, tensor] : source.tensors())
      bytes += std::max<int64_t>(tensor.elements() * size_of(type.computed) - tensor.bytes, 0);
  return bytes;
}

// An empty folder `temporary` with the companions in it, on a disk with room for the weights.
void prepare(const std::string& out, const std::string& temporary, const Checkpoint& source,
             const WriteType& type) {
  checked("cannot prepare " + temporary, [&] {
    require(
        !fs::exists(out) || !fs::equivalent(out, source.folder()),
        "weights would be written over the checkpoint {} they come from - choose another folder",
        out);
    fs::remove_all(temporary);
    fs::create_directories(temporary);
    const auto room = static_cast<int64_t>(fs::space(temporary).available);
    const int64_t needed = bytes_needed(source, type);
    require(room >= needed, "not enough room for weights in {} ({} bytes needed, {} free)", out,
            needed, room);
    copy_companions(source.folder(), temporary);
    fs::rename(temporary + "/" + config_file, temporary + "/" + unready_config);
  });
}

// A crash between the two renames leaves the older weights as out.old.
void replace_folder(const std::string& temporary, const std::string& out) {
  checked("cannot replace " + out, [&] {
    const std::string old = out + ".old";
    sync_folder(temporary);
    fs::remove_all(old);
    if (fs::exists(out)) move_into_place(out, old);
    move_into_place(temporary, out);
    fs::remove_all(old);
  });
}

// Puts `values` into `raw` in the stored type; returns how many finite ones became infinite.
template <class T>
int64_t narrow(const std::string& type, std::span<const T> values, std::vector<std::byte>& raw) {
  const auto each = [&](auto&& convert, auto&& infinite) {
    using Stored = decltype(convert(values[0]));
    raw.resize(values.size() * sizeof(Stored));
    int64_t overflows = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const Stored stored = convert(values[i]);
      std::memcpy(raw.data() + i * sizeof stored, &stored, sizeof stored);
      overflows += infinite(stored) && !std::isinf(values[i]);
    }
    return overflows;
  };
  const auto is_infinite = [](auto stored) { return std::isinf(stored); };
  if (type == "F32") return each([](T x) { return static_cast<float>(x); }, is_infinite);
  if (type == "F64") return each([](T x) { return static_cast<double>(x); }, is_infinite);
  if (type == "BF16")
    return each([](T x) { return to_bf16(x); },
                [](uint16_t bits) { return (bits & 0x7fff) == 0x7f80; });
  require(type == "F16", "cannot write trained values in type {}", type);
  return each([](T x) { return to_f16(x); },
              [](uint16_t bits) { return (bits & 0x7fff) == 0x7c00; });
}

using Tensors = std::map<std::string, StoredTensor>;

// The tensors of `source` in the types that they will be stored in.
Tensors in_new_types(const Checkpoint& source, const WriteType& type, const NewValues& values) {
  Tensors tensors = source.tensors();
  if (type.stored_as == StoredAs::source) return tensors;
  for (auto& [name, tensor] : tensors) {
    if (!values.mine(name)) continue;
    tensor.type = type.computed == DType::float64 ? "F64" : "F32";
    tensor.bytes = tensor.elements() * size_of(type.computed);
  }
  return tensors;
}

// Names of the tensors of a file in the order of their places.
std::vector<std::string> order_in(const Checkpoint& source, int file) {
  std::vector<std::pair<int64_t, std::string>> places;
  for (const auto& [name, tensor] : source.tensors())
    if (tensor.file == file) places.emplace_back(tensor.offset, name);
  std::sort(places.begin(), places.end());
  std::vector<std::string> order;
  for (const auto& [offset, name] : places) order.push_back(name);
  return order;
}

// The start of a file of tensors up to their values.
std::string header_of(const std::string& path) {
  std::string header(safetensors_data_begin(path), ' ');
  DiskFile::open(path).read(header.data(), std::ssize(header), 0);
  return header;
}

// The header of the file `from` with other types and places, those of `tensors`, which count from
// the first value.
std::string header_with(const std::string& from, const std::vector<std::string>& order,
                        const Tensors& tensors) {
  auto header = parse_json<ordered_json>(header_of(from).substr(8), from + ": header");
  for (const auto& name : order) {
    const StoredTensor& tensor = tensors.at(name);
    header[name]["dtype"] = tensor.type;
    header[name]["data_offsets"] = {tensor.offset, tensor.offset + tensor.bytes};
  }
  std::string text = json_text(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const auto size = static_cast<uint64_t>(text.size());
  std::string bytes(sizeof size, '\0');
  std::memcpy(bytes.data(), &size, sizeof size);
  return bytes + text;
}

// A file of its final size that holds but its header.
void make_file(const std::string& path, const std::string& header, int64_t bytes) {
  DiskFile::create(path).write(header);
  take_room(path, bytes);
  checked("cannot give " + path + " its size", [&] { fs::resize_file(path, bytes); });
}

// Makes the files on rank 0, and gives `tensors` their places in them on all.
void lay_out(const std::string& folder, const Checkpoint& source, const Grid& grid,
             Tensors& tensors) {
  for (int file = 0; file < std::ssize(source.files()); ++file) {
    const auto order = order_in(source, file);
    const bool same = std::all_of(order.begin(), order.end(), [&](const auto& name) {
      return tensors.at(name).type == source.at(name).type;
    });
    int64_t bytes = 0;
    for (const auto& name : order) {
      if (!same) tensors.at(name).offset = bytes;
      bytes += tensors.at(name).bytes;
    }
    int64_t begin = 0;
    agree(grid, [&] {
      if (grid.rank() != 0) return;
      const std::string& name = source.files()[file];
      const std::string from = source.folder() + "/" + name;
      const std::string header = same ? header_of(from) : header_with(from, order, tensors);
      begin = std::ssize(header);
      make_file(folder + "/" + name, header, begin + bytes);
    });
    grid.broadcast(&begin, sizeof begin, 0);
    if (!same)
      for (const auto& name : order) tensors.at(name).offset += begin;
  }
}

// Elements of a tensor that one rank gave, or all of them.
struct Given {
  uint64_t elements = 0;
  uint64_t overflows = 0;  // of them: finite values that became infinite
};

// Writes what this rank gives into files that are laid out. Exchanges nothing.
class Filling {
 public:
  Filling(const Checkpoint& source, const Tensors& tensors, const NewValues& values,
          const Tensor& buffer, const Grid& grid)
      : source_(source), tensors_(tensors), values_(values), buffer_(buffer), grid_(grid) {}

  void fill(const std::string& folder) {
    Transfer transfer("writing weights", share(), grid_.rank() == 0);
    for (int file = 0; file < std::ssize(source_.files()); ++file) {
      const std::string& name = source_.files()[file];
      const auto from = DiskFile::open(source_.folder() + "/" + name);
      auto to = DiskFile::change(folder + "/" + name);
      for (const auto& [tensor, place] : tensors_) {
        if (place.file != file) continue;
        if (const auto own = values_.mine(tensor))
          give(tensor, *own, to, transfer);
        else
          copy_share(source_.at(tensor), place, from, to, transfer);
      }
      to.sync();
    }
  }

  /// Of the tensors with new values.
  const std::map<std::string, Given>& given() const { return given_; }

 private:
  // Bytes of new values, as they are stored, and of copies.
  int64_t share() const {
    int64_t bytes = 0;
    for (const auto& [name, place] : tensors_) {
      const auto own = values_.mine(name);
      bytes += own ? own->size() * (place.bytes / std::max<int64_t>(place.elements(), 1))
                   : grid_.mine(place.bytes).size();
    }
    return bytes;
  }

  void give(const std::string& name, Range own, DiskFile& to, Transfer& transfer) {
    const StoredTensor& place = tensors_.at(name);
    Given& given = given_[name];
    for_each_part(own, part_elements, [&](Range part) {
      const Tensor values = buffer_.rows(0, part.size());
      values_.read(name, part, values);
      given.overflows += dispatch(values.type(), [&]<class T>(T) {
        return narrow(place.type, std::span<const T>(values.data<T>(), values.size()), raw_);
      });
      given.elements += part.size();
      const int64_t width = std::ssize(raw_) / part.size();
      to.write(raw_.data(), std::ssize(raw_), place.offset + part.begin * width);
      transfer.done(std::ssize(raw_));
      grid_.activity().beat();
    });
  }

  void copy_share(const StoredTensor& tensor, const StoredTensor& place, const DiskFile& from,
                  DiskFile& to, Transfer& transfer) {
    for_each_part(grid_.mine(tensor.bytes), copy_part, [&](Range part) {
      raw_.resize(part.size());
      from.read(raw_.data(), part.size(), tensor.offset + part.begin);
      to.write(raw_.data(), part.size(), place.offset + part.begin);
      transfer.done(part.size());
      grid_.activity().beat();
    });
  }

  const Checkpoint& source_;
  const Tensors& tensors_;
  const NewValues& values_;
  const Tensor& buffer_;
  const Grid& grid_;
  std::map<std::string, Given> given_;
  std::vector<std::byte> raw_;
};

// What the ranks gave must make up the tensors. Collective.
void check_given(const std::map<std::string, Given>& given, const Tensors& tensors,
                 const Grid& grid) {
  std::vector<uint64_t> counts;
  for (const auto& [name, of] : given) counts.insert(counts.end(), {of.elements, of.overflows});
  grid.sum(counts);
  size_t at = 0;
  for (const auto& [name, of] : given) {
    const StoredTensor& tensor = tensors.at(name);
    const uint64_t elements = counts[at++], overflows = counts[at++];
    if (static_cast<int64_t>(elements) != tensor.elements())
      throw Error(
          str("ranks gave {} of the {} new values of {}", elements, tensor.elements(), name), 1,
          true);
    if (overflows > 0)
      log(Level::warning, "{} values of {} became infinite in its type {}", overflows, name,
          tensor.type);
  }
}

void change_json(const std::string& path, const std::function<void(ordered_json&)>& change) {
  if (!fs::exists(path)) return;
  auto object = parse_json<ordered_json>(read_text(path, largest_json), path);
  change(object);
  write_text(path, json_text(object, 2) + "\n");
}

// Readers of a checkpoint take the type from its configuration, whatever its tensors are.
void tell_types(const std::string& folder, DType type, const Tensors& tensors) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += tensor.bytes;
  change_json(folder + "/" + unready_config, [&](ordered_json& config) {
    for (auto* part : {&config, config.contains("text_config") ? &config["text_config"] : nullptr})
      for (const char* key : {"dtype", "torch_dtype"})
        if (part != nullptr && part->contains(key)) (*part)[key] = name_of(type);
  });
  change_json(folder + "/" + index_file, [&](ordered_json& index) {
    if (index.contains("metadata") && index["metadata"].contains("total_size"))
      index["metadata"]["total_size"] = bytes;
  });
}

// What makes the folder a checkpoint, and puts it into its place.
void finish(const std::string& temporary, const std::string& out, const WriteType& type,
            const Tensors& tensors) {
  if (type.stored_as == StoredAs::computed) tell_types(temporary, type.computed, tensors);
  move_into_place(temporary + "/" + unready_config, temporary + "/" + config_file);
  replace_folder(temporary, out);
}

}  // namespace

void write_checkpoint(const std::string& folder, const Checkpoint& source, const Grid& grid,
                      Ledger& ledger, WriteType type, const NewValues& values) {
  const std::string out = without_slash(folder), temporary = out + ".tmp";
  int64_t largest = 0;
  for (const auto& [name, tensor] : source.tensors())
    largest = std::max(largest, tensor.elements());
  const Field buffer(ledger, "scratch", type.computed, {std::min(largest, part_elements)});
  Tensors tensors = in_new_types(source, type, values);
  Filling filling(source, tensors, values, buffer, grid);
  try {
    agree(grid, [&] {
      if (grid.rank() == 0) prepare(out, temporary, source, type);
    });
    lay_out(temporary, source, grid, tensors);
    agree(grid, [&] { filling.fill(temporary); });
    check_given(filling.given(), tensors, grid);
    agree(grid, [&] {
      if (grid.rank() == 0) finish(temporary, out, type, tensors);
    });
  } catch (const Error&) {
    std::error_code ignored;
    if (grid.rank() == 0) fs::remove_all(temporary, ignored);
    throw;
  }
}

}  // namespace longstraw
