// What the fuzz targets share: one input is refused with an `Error` or read; anything else -
// another exception, a signal, a sanitizer's finding, much memory - is a fault of the reader.
#pragma once

#include "longstraw/core/check.hpp"

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <string_view>

namespace longstraw::fuzz {

/// Ends the process when something that must hold does not.
inline void must(bool holds) {
  if (!holds) std::abort();
}

/// A refusal says `named`. With FUZZ_SAYS in the environment, refusals are shown.
template <class Act>
void read_or_refuse(Act&& act, std::string_view named = {}) {
  try {
    act();
  } catch (const Error& error) {
    if (std::getenv("FUZZ_SAYS") != nullptr) std::cerr << error.what() << '\n';
    must(*error.what() != '\0' && std::string_view(error.what()).find(named) != named.npos);
  }
}

/// A file of this process in memory, under a path that HDF5 takes too; a second one has an
/// `ending`.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view content = {}, std::string_view ending = {})
      : path_(str("/dev/shm/longstraw-fuzz-{}{}", ::getpid(), ending)) {
    std::ofstream(path_, std::ios::binary) << content;
  }
  ~MemoryFile() { ::unlink(path_.c_str()); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace longstraw::fuzz
