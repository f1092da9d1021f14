// A safetensors file made by hand, independent of the code under test.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace longstraw::support {

class SafetensorsFile {
 public:
  /// Types F64 F32 F16 BF16 I64; values that the type holds exactly.
  SafetensorsFile& add(const std::string& name, const std::string& type,
                       const std::vector<int64_t>& shape, const std::vector<double>& values) {
    const size_t begin = data_.size();
    for (double value : values) append(type, value);
    header_[name] = {{"dtype", type}, {"shape", shape}, {"data_offsets", {begin, data_.size()}}};
    return *this;
  }

  std::string text() const { return with_length(header_.dump()) + data_; }

  static std::string with_length(const std::string& header) {
    const uint64_t length = header.size();
    std::string text(sizeof length, '\0');
    std::memcpy(text.data(), &length, sizeof length);
    return text + header;
  }

 private:
  void append(const std::string& type, double value) {
    const auto single = static_cast<float>(value);
    if (type == "F64") put(value);
    if (type == "F32") put(single);
    if (type == "I64") put(static_cast<int64_t>(value));
    if (type == "F16") {
      const auto half = static_cast<_Float16>(value);
      put(half);
    }
    if (type == "BF16") {
      uint32_t bits;
      std::memcpy(&bits, &single, sizeof bits);
      put(static_cast<uint16_t>(bits >> 16));
    }
  }
  template <class T>
  void put(T value) {
    data_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }

  nlohmann::ordered_json header_ = nlohmann::ordered_json::object();
  std::string data_;
};

}  // namespace longstraw::support
