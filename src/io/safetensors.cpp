#include "longstraw/io/safetensors.hpp"

#include "longstraw/core/json_check.hpp"
#include "longstraw/io/file.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <bit>

namespace longstraw {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr int64_t length_bytes = 8;
constexpr int64_t largest_header = 100'000'000;  // the format's own limit

struct TypeBits {
  std::string_view name;
  int64_t bits;
};
constexpr std::array type_bits = {
    TypeBits{"BOOL", 8},    TypeBits{"U8", 8},      TypeBits{"I8", 8},   TypeBits{"F8_E5M2", 8},
    TypeBits{"F8_E4M3", 8}, TypeBits{"F8_E8M0", 8}, TypeBits{"F4", 4},   TypeBits{"F6_E2M3", 6},
    TypeBits{"F6_E3M2", 6}, TypeBits{"I16", 16},    TypeBits{"U16", 16}, TypeBits{"F16", 16},
    TypeBits{"BF16", 16},   TypeBits{"I32", 32},    TypeBits{"U32", 32}, TypeBits{"F32", 32},
    TypeBits{"I64", 64},    TypeBits{"U64", 64},    TypeBits{"F64", 64}, TypeBits{"C64", 64}};

constexpr const char* cure = " - download or convert the file again";

std::vector<int64_t> natural_numbers(const json& value, const std::string& where) {
  require(value.is_array(), "{} is no list of numbers{}", where, cure);
  std::vector<int64_t> numbers;
  for (const auto& one : value) {
    require(is_count(one), "{} holds {}, which is no count{}", where, one.dump(), cure);
    numbers.push_back(one.get<int64_t>());
  }
  return numbers;
}

// Bytes of `shape`, or an error where the product leaves 64 bits.
int64_t bytes_of(const StoredTensor& tensor, const std::string& where) {
  const auto known = std::find_if(type_bits.begin(), type_bits.end(),
                                  [&](const TypeBits& t) { return t.name == tensor.type; });
  require(known != type_bits.end(), "{} has unknown type {}", where, tensor.type);
  int64_t bits = known->bits;
  for (const int64_t extent : tensor.shape)
    require(!__builtin_mul_overflow(bits, extent, &bits), "{} has a size beyond 64 bits{}", where,
            cure);
  require(bits % 8 == 0, "{} does not fill its last byte{}", where, cure);
  return bits / 8;
}

StoredTensor parsed_tensor(const json& entry, const std::string& where, int64_t data_begin,
                           int64_t file_bytes) {
  require(entry.is_object() && entry.contains("dtype") && entry["dtype"].is_string() &&
              entry.contains("shape") && entry.contains("data_offsets"),
          "{} lacks dtype, shape or data_offsets{}", where, cure);
  StoredTensor tensor;
  tensor.type = entry["dtype"].get<std::string>();
  tensor.shape = natural_numbers(entry["shape"], where + " shape");
  const auto offsets = natural_numbers(entry["data_offsets"], where + " data_offsets");
  require(offsets.size() == 2 && offsets[0] <= offsets[1], "{} has data_offsets {}{}", where,
          entry["data_offsets"].dump(), cure);
  require(offsets[1] <= file_bytes - data_begin,
          "{} ends at byte {} of a file of {} bytes (truncated){}", where,
          static_cast<uint64_t>(data_begin) + offsets[1], file_bytes, cure);
  tensor.offset = data_begin + offsets[0];
  tensor.bytes = offsets[1] - offsets[0];
  const int64_t expected = bytes_of(tensor, where);
  require(tensor.bytes == expected, "{} has {} bytes where type {} and shape {} need {}{}", where,
          tensor.bytes, tensor.type, entry["shape"].dump(), expected, cure);
  return tensor;
}

// The tensors, in the order of their bytes, fill the file from `begin` to `end`.
void check_cover(const std::map<std::string, StoredTensor>& tensors, const std::string& path,
                 int64_t begin, int64_t end) {
  std::vector<std::pair<int64_t, std::string>> order;
  for (const auto& [name, tensor] : tensors) order.emplace_back(tensor.offset, name);
  std::sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first
                              : tensors.at(a.second).bytes < tensors.at(b.second).bytes;
  });
  int64_t next = begin;
  for (const auto& [offset, name] : order) {
    require(offset >= next, "{}: tensor {} overlaps the one before it{}", path, name, cure);
    require(offset <= next, "{}: {} bytes before tensor {} belong to no tensor{}", path,
            offset - next, name, cure);
    next = offset + tensors.at(name).bytes;
  }
  require(next == end, "{}: {} bytes follow the last tensor{}", path, end - next, cure);
}

int64_t header_bytes(const DiskFile& file, const std::string& path) {
  const int64_t size = file.size();
  require(size > length_bytes, "{} holds {} bytes, too few for a safetensors file{}", path, size,
          cure);
  uint64_t length = 0;
  file.read(&length, length_bytes, 0);
  std::array<char, length_bytes> start{};
  file.read(start.data(), length_bytes, 0);
  require(std::string_view(start.data(), length_bytes) != "version ",
          "{} is a Git LFS pointer, not the weights - run 'git lfs pull' in its folder", path);
  require(length <= uint64_t{largest_header}, "{}: header of {} bytes (more than {}){}", path,
          length, largest_header, cure);
  require(static_cast<int64_t>(length) <= size - length_bytes,
          "{}: header ends at byte {} of a file of {} bytes (truncated){}", path,
          length + length_bytes, size, cure);
  return static_cast<int64_t>(length);
}

}  // namespace

std::map<std::string, StoredTensor> read_safetensors_header(const std::string& path, int file) {
  const auto disk = DiskFile::open(path);
  std::string text(header_bytes(disk, path), '\0');
  disk.read(text.data(), static_cast<int64_t>(text.size()), length_bytes);
  const int64_t begin = length_bytes + static_cast<int64_t>(text.size()), end = disk.size();
  const json header = parse_json<json>(text, path + ": header", cure);
  require(header.is_object(), "{}: header is no JSON object{}", path, cure);
  std::map<std::string, StoredTensor> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    auto tensor = parsed_tensor(entry, str("{}: tensor {}", path, name), begin, end);
    tensor.file = file;
    tensors.emplace(name, std::move(tensor));
  }
  check_cover(tensors, path, begin, end);
  return tensors;
}

int64_t safetensors_data_begin(const std::string& path) {
  return length_bytes + header_bytes(DiskFile::open(path), path);
}

}  // namespace longstraw
