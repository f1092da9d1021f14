// The input is the header's JSON and, behind a zero byte, the data; with a first byte of 0xFF it is
// a whole file instead, the length of its header included.
#include "fuzz/fuzz.hpp"

#include "longstraw/io/safetensors.hpp"

#include <cstring>

using namespace longstraw;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  std::string content;
  if (input.starts_with('\xff')) {
    content = input.substr(1);
  } else {
    const size_t cut = std::min(input.find('\0'), input.size());
    const uint64_t length = cut;
    content.assign(reinterpret_cast<const char*>(&length), sizeof length);
    content += input.substr(0, cut);
    if (cut < input.size()) content += input.substr(cut + 1);
  }
  const fuzz::MemoryFile file(content);
  fuzz::read_or_refuse([&] {
    int64_t covered = safetensors_data_begin(file.path());
    for (const auto& [name, tensor] : read_safetensors_header(file.path(), 0)) {
      fuzz::must(tensor.offset >= 0 && tensor.bytes >= 0);
      fuzz::must(tensor.offset + tensor.bytes <= std::ssize(content));
      covered += tensor.bytes;
    }
    fuzz::must(covered == std::ssize(content));
  });
  return 0;
}
