#include "longstraw/io/checkpoint.hpp"

#include "longstraw/core/json_check.hpp"
#include "longstraw/io/checksum.hpp"
#include "longstraw/io/file.hpp"
#include "longstraw/io/number_formats.hpp"
#include "longstraw/io/safetensors.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>

namespace longstraw {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* single_file = "model.safetensors";
constexpr int64_t read_part = 4 << 20;  // bytes converted at a time

bool exists(const std::string& path) {
  std::error_code failed;
  return fs::exists(path, failed);
}

using WeightMap = std::map<std::string, std::string>;  // tensor -> file

WeightMap read_index(const std::string& folder) {
  const std::string path = folder + "/" + index_file;
  constexpr const char* cure = " - download it again";
  const json index = parse_json<json>(read_text(path, largest_json), path, cure);
  require(index.is_object() && index.contains("weight_map") && index["weight_map"].is_object(),
          "{} is no index of weights (no object with a weight_map){}", path, cure);
  WeightMap map;
  for (const auto& [name, file] : index["weight_map"].items()) {
    require(file.is_string(), "{}: file of tensor {} is no text", path, name);
    const auto text = file.get<std::string>();
    require(!text.empty() && text.find('/') == std::string::npos && text != "..",
            "{}: tensor {} is in '{}', which is no file of this folder", path, name, text);
    map.emplace(name, text);
  }
  require(!map.empty(), "{}: weight_map is empty", path);
  return map;
}

struct NumberedName {
  std::string_view prefix, number, total;
};

bool digits(std::string_view text) {
  return !text.empty() && text.size() <= 6 &&
         text.find_first_not_of("0123456789") == std::string_view::npos;
}

// PREFIX-NUMBER-of-TOTAL.safetensors, cut up.
std::optional<NumberedName> numbered(std::string_view name) {
  constexpr std::string_view suffix = ".safetensors", of = "-of-";
  if (!name.ends_with(suffix)) return std::nullopt;
  name.remove_suffix(suffix.size());
  const auto middle = name.rfind(of);
  const auto dash = middle == std::string_view::npos || middle == 0 ? std::string_view::npos
                                                                    : name.rfind('-', middle - 1);
  if (dash == std::string_view::npos) return std::nullopt;
  const NumberedName parts{name.substr(0, dash), name.substr(dash + 1, middle - dash - 1),
                           name.substr(middle + of.size())};
  return digits(parts.number) && digits(parts.total) ? std::optional(parts) : std::nullopt;
}

// Files *-00001-of-0000N.safetensors of a folder without an index; all N of them.
std::vector<std::string> numbered_files(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(folder, failed))
    if (const auto name = entry.path().filename().string(); numbered(name)) found.push_back(name);
  require(!found.empty(),
          "{} holds no weights (neither {}, nor {}, nor numbered safetensors files)", folder,
          single_file, index_file);
  std::sort(found.begin(), found.end());
  const NumberedName first = *numbered(found.front());
  for (const auto& name : found) {
    const NumberedName parts = *numbered(name);
    require(parts.prefix == first.prefix && parts.total == first.total,
            "{}: {} and {} belong to different sets of weights - keep one of them", folder,
            found.front(), name);
  }
  const int total = std::stoi(std::string(first.total));
  require(std::ssize(found) == total,
          "{}: {} of {} files {}-*-of-{}.safetensors are there - download the missing ones", folder,
          found.size(), total, first.prefix, first.total);
  return found;
}

std::vector<std::string> weight_files(const std::string& folder, const WeightMap& index) {
  if (index.empty()) {
    if (exists(folder + "/" + single_file)) return {single_file};
    return numbered_files(folder);
  }
  std::vector<std::string> files, missing;
  for (const auto& [name, file] : index) files.push_back(file);
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  std::copy_if(files.begin(), files.end(), std::back_inserter(missing),
               [&](const auto& file) { return !exists(folder + "/" + file); });
  require(missing.empty(), "{}: {} names missing files: {} - download them", folder, index_file,
          fmt::join(missing, ", "));
  return files;
}

void check_index(const WeightMap& index, const std::vector<std::string>& files,
                 const std::map<std::string, StoredTensor>& tensors, const std::string& folder) {
  for (const auto& [name, file] : index) {
    const auto found = tensors.find(name);
    require(found != tensors.end() && files[found->second.file] == file,
            "{}: {} says tensor {} is in {}, but it is {} - download the folder again", folder,
            index_file, name, file,
            found == tensors.end() ? "in no file" : "in " + files[found->second.file]);
  }
}

template <class T>
void widen(const std::string& type, const std::byte* from, T* to, int64_t count) {
  const auto each = [&]<class Stored>(Stored, auto&& convert) {
    for (int64_t i = 0; i < count; ++i) {
      Stored stored;
      std::memcpy(&stored, from + i * sizeof stored, sizeof stored);
      to[i] = static_cast<T>(convert(stored));
    }
  };
  if (type == "F32") return each(float{}, [](float x) { return x; });
  if (type == "F64") return each(double{}, [](double x) { return x; });
  if (type == "BF16") return each(uint16_t{}, from_bf16);
  each(uint16_t{}, from_f16);
}

int64_t element_bytes(const std::string& type) {
  if (type == "F64") return 8;
  if (type == "F32") return 4;
  return type == "F16" || type == "BF16" ? 2 : 0;
}

// What rank 0 found, as bytes for the others.
std::string packed(const std::string& config, const std::vector<std::string>& files,
                   const std::map<std::string, StoredTensor>& tensors) {
  json list = json::array();
  for (const auto& [name, t] : tensors)
    list.push_back({name, t.type, t.shape, t.file, t.offset, t.bytes});
  const auto bytes = json::to_cbor(json{{"config", config}, {"files", files}, {"tensors", list}});
  return {bytes.begin(), bytes.end()};
}

}  // namespace

int64_t StoredTensor::elements() const { return elements_of(shape); }

Checkpoint Checkpoint::open(const std::string& folder, const Grid& grid) {
  Checkpoint found;
  found.folder_ = fs::absolute(folder).lexically_normal().string();
  std::string bytes;
  agree(grid, [&] {
    if (grid.rank() != 0) return;
    const std::string& at = found.folder_;
    require(exists(at + "/config.json"),
            "checkpoint {} is no folder with a config.json - check [model] checkpoint", at);
    found.config_ = read_text(at + "/config.json", largest_json);
    const bool indexed = !exists(at + "/" + single_file) && exists(at + "/" + index_file);
    const WeightMap index = indexed ? read_index(at) : WeightMap();
    found.files_ = weight_files(at, index);
    for (int file = 0; file < std::ssize(found.files_); ++file) {
      for (auto& [name, tensor] : read_safetensors_header(at + "/" + found.files_[file], file)) {
        const auto [other, added] = found.tensors_.emplace(name, tensor);
        require(added, "{}: tensor {} is in {} and in {} - keep one of them", at, name,
                found.files_[other->second.file], found.files_[file]);
      }
    }
    check_index(index, found.files_, found.tensors_, at);
    bytes = packed(found.config_, found.files_, found.tensors_);
  });
  bytes = grid.broadcast(bytes, 0);
  if (grid.rank() == 0) return found;
  const json all = json::from_cbor(bytes);
  found.config_ = all["config"];
  found.files_ = all["files"].get<std::vector<std::string>>();
  for (const auto& t : all["tensors"])
    found.tensors_.emplace(t[0], StoredTensor{t[1], t[2], t[3], t[4], t[5]});
  return found;
}

const StoredTensor& Checkpoint::at(const std::string& name) const {
  const auto found = tensors_.find(name);
  require(found != tensors_.end(), "checkpoint {} has no tensor {}", folder_, name);
  return found->second;
}

void Checkpoint::read(const std::string& name, Range elements, const Tensor& into) const {
  const StoredTensor& tensor = at(name);
  LONGSTRAW_ASSERT(into.contiguous() && into.size() == elements.size());
  LONGSTRAW_ASSERT(0 <= elements.begin && elements.end <= tensor.elements());
  const int64_t width = element_bytes(tensor.type);
  require(width > 0,
          "{}: tensor {} has type {} (F64, F32, F16 and BF16 can be computed with) - convert the "
          "checkpoint to one of these",
          folder_, name, tensor.type);
  const auto file = DiskFile::open(folder_ + "/" + files_[tensor.file]);
  const int64_t part = std::min(read_part / width, std::max<int64_t>(elements.size(), 1));
  std::vector<std::byte> raw(part * width);
  for (int64_t begin = elements.begin; begin < elements.end; begin += part) {
    const int64_t count = std::min(part, elements.end - begin);
    file.read(raw.data(), count * width, tensor.offset + begin * width);
    dispatch(into.type(), [&]<class T>(T) {
      widen(tensor.type, raw.data(), into.data<T>() + (begin - elements.begin), count);
    });
  }
}

std::string Checkpoint::digest() const {
  constexpr int64_t sample = 4096;
  Digest digest;
  digest.add(config_);
  std::string bytes;
  for (const auto& [name, tensor] : tensors_) {
    digest.add(str("{} {} [{}]", name, tensor.type, fmt::join(tensor.shape, ", ")));
    const auto file = DiskFile::open(folder_ + "/" + files_[tensor.file]);
    bytes.resize(std::min(sample, tensor.bytes));
    const int64_t last = tensor.bytes - std::ssize(bytes);
    for (const int64_t at : {int64_t{0}, last / 2, last}) {
      file.read(bytes.data(), std::ssize(bytes), tensor.offset + at);
      digest.add(bytes);
    }
  }
  return digest.text();
}

}  // namespace longstraw
