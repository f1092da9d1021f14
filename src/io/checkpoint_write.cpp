#include "longstraw/core/field.hpp"
#include "longstraw/core/json_check.hpp"
#include "longstraw/core/log.hpp"
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
#include <optional>
#include <span>

namespace longstraw {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr int64_t part_elements = int64_t{1} << 22;
constexpr int64_t copy_part = int64_t{16} << 20;
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

void copy_bytes(DiskFile& to, const DiskFile& from, int64_t offset, int64_t bytes) {
  std::vector<std::byte> buffer(std::min(bytes, copy_part));
  for (int64_t done = 0; done < bytes; done += copy_part) {
    const int64_t part = std::min(copy_part, bytes - done);
    from.read(buffer.data(), part, offset + done);
    to.write(buffer.data(), part);
  }
}

void copy_file(const std::string& from, const std::string& to) {
  const auto source = DiskFile::open(from);
  auto copy = DiskFile::create(to);
  copy_bytes(copy, source, 0, source.size());
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

// One shard under way on rank 0; the other ranks hold none.
struct Shard {
  DiskFile from, to;
};

int64_t stored_bytes(const StoredTensor& tensor, const std::string& type) {
  return type == tensor.type ? tensor.bytes : tensor.elements() * (type == "F64" ? 8 : 4);
}

class TensorWriter {
 public:
  TensorWriter(const Grid& grid, const Tensor& values, const WriteType& type,
               const Provide& provide)
      : grid_(grid), values_(values), type_(type), provide_(provide) {}

  /// The type that the tensor will be stored in.
  std::string stored_type(const std::string& name, const StoredTensor& tensor) const {
    if (type_.stored_as == StoredAs::source || !provide_(name, {0, 0}, values_.rows(0, 0)))
      return tensor.type;
    return type_.computed == DType::float64 ? "F64" : "F32";
  }

  /// Bytes of all tensors as they will be stored.
  int64_t bytes(const Checkpoint& source) const {
    int64_t bytes = 0;
    for (const auto& [name, tensor] : source.tensors())
      bytes += stored_bytes(tensor, stored_type(name, tensor));
    return bytes;
  }

  void write(const std::string& name, const StoredTensor& tensor, std::optional<Shard>& shard) {
    const int64_t elements = tensor.elements();
    bool trained = true;
    int64_t overflows = 0;
    const std::string stored = stored_type(name, tensor);
    for (int64_t begin = 0; begin < elements && trained; begin += part_elements) {
      const Range part{begin, std::min(begin + part_elements, elements)};
      const Tensor values = values_.rows(0, part.size());
      trained = provide_(name, part, values);
      if (trained)
        agree(grid_, [&] {
          if (shard) overflows += put(stored, values, shard->to);
        });
    }
    if (!trained)
      agree(grid_, [&] {
        if (shard) copy_bytes(shard->to, shard->from, tensor.offset, tensor.bytes);
      });
    if (overflows > 0)
      log(Level::warning, "{} values of {} became infinite in its type {}", overflows, name,
          stored);
  }

 private:
  int64_t put(const std::string& type, const Tensor& values, DiskFile& to) {
    const int64_t overflows = dispatch(values.type(), [&]<class T>(T) {
      return narrow(type, std::span<const T>(values.data<T>(), values.size()), raw_);
    });
    to.write(raw_.data(), std::ssize(raw_));
    return overflows;
  }

  const Grid& grid_;
  const Tensor& values_;
  const WriteType type_;
  const Provide& provide_;
  std::vector<std::byte> raw_;
};

// The header of a file with tensors in `order`, with its length, as it stands in the file `from`
// but for types and places.
std::string header_with(const std::string& from, const Checkpoint& source,
                        const std::vector<std::string>& order,
                        const std::map<std::string, std::string>& types) {
  const int64_t length = safetensors_data_begin(from) - 8;
  std::string text(length, ' ');
  DiskFile::open(from).read(text.data(), length, 8);
  auto header = parse_json<ordered_json>(text, from + ": header");
  int64_t at = 0;
  for (const auto& name : order) {
    const StoredTensor& tensor = source.at(name);
    const std::string& type = types.at(name);
    const int64_t bytes = stored_bytes(tensor, type);
    header[name]["dtype"] = type;
    header[name]["data_offsets"] = {at, at + bytes};
    at += bytes;
  }
  text = json_text(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const auto size = static_cast<uint64_t>(text.size());
  std::string bytes(sizeof size, '\0');
  std::memcpy(bytes.data(), &size, sizeof size);
  return bytes + text;
}

void change_json(const std::string& path, const std::function<void(ordered_json&)>& change) {
  if (!fs::exists(path)) return;
  auto object = parse_json<ordered_json>(read_text(path, largest_json), path);
  change(object);
  write_text(path, json_text(object, 2) + "\n");
}

// Readers of a checkpoint take the type from its configuration, whatever its tensors are.
void tell_types(const std::string& folder, DType type, int64_t bytes) {
  change_json(folder + "/config.json", [&](ordered_json& config) {
    for (auto* part : {&config, config.contains("text_config") ? &config["text_config"] : nullptr})
      for (const char* key : {"dtype", "torch_dtype"})
        if (part != nullptr && part->contains(key)) (*part)[key] = name_of(type);
  });
  change_json(folder + "/" + index_file, [&](ordered_json& index) {
    if (index.contains("metadata") && index["metadata"].contains("total_size"))
      index["metadata"]["total_size"] = bytes;
  });
}

void write_shard(const std::string& temporary, const Checkpoint& source, int file, const Grid& grid,
                 TensorWriter& writer) {
  std::vector<std::pair<int64_t, std::string>> places;
  for (const auto& [name, tensor] : source.tensors())
    if (tensor.file == file) places.emplace_back(tensor.offset, name);
  std::sort(places.begin(), places.end());
  std::vector<std::string> order;
  std::map<std::string, std::string> types;
  bool same = true;
  for (const auto& [offset, name] : places) {
    order.push_back(name);
    types[name] = writer.stored_type(name, source.at(name));
    same = same && types[name] == source.at(name).type;
  }
  const std::string name = source.files()[file], from = source.folder() + "/" + name;
  std::optional<Shard> shard;
  agree(grid, [&] {
    if (grid.rank() != 0) return;
    shard.emplace(Shard{DiskFile::open(from), DiskFile::create(temporary + "/" + name)});
    if (same)
      copy_bytes(shard->to, shard->from, 0, safetensors_data_begin(from));
    else
      shard->to.write(header_with(from, source, order, types));
  });
  for (const auto& tensor : order) writer.write(tensor, source.at(tensor), shard);
  agree(grid, [&] {
    if (shard) shard->to.sync();
  });
}

}  // namespace

void write_checkpoint(const std::string& folder, const Checkpoint& source, const Grid& grid,
                      Ledger& ledger, WriteType type, const Provide& provide) {
  const std::string out = without_slash(folder), temporary = out + ".tmp";
  int64_t largest = 0;
  for (const auto& [name, tensor] : source.tensors())
    largest = std::max(largest, tensor.elements());
  const Field values(ledger, "scratch", type.computed, {std::min(largest, part_elements)});
  TensorWriter writer(grid, values, type, provide);
  try {
    agree(grid, [&] {
      if (grid.rank() == 0) prepare(out, temporary, source, type);
    });
    for (int file = 0; file < std::ssize(source.files()); ++file)
      write_shard(temporary, source, file, grid, writer);
    const int64_t bytes = writer.bytes(source);
    agree(grid, [&] {
      if (grid.rank() != 0) return;
      if (type.stored_as == StoredAs::computed) tell_types(temporary, type.computed, bytes);
      replace_folder(temporary, out);
    });
  } catch (const Error&) {
    std::error_code ignored;
    if (grid.rank() == 0) fs::remove_all(temporary, ignored);
    throw;
  }
}

}  // namespace longstraw
