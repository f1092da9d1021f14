// Model weights as a Hugging Face folder: config.json and safetensors files, read and written.
// What the tensors mean is left to the model.
#pragma once

#include "longstraw/comm/grid.hpp"
#include "longstraw/core/ledger.hpp"
#include "longstraw/core/tensor.hpp"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace longstraw {

/// Where a tensor lies in its file.
struct StoredTensor {
  std::string type;            // as the file names it: F64 F32 F16 BF16, or one we only copy
  std::vector<int64_t> shape;  // empty for a scalar
  int file = 0;                // index into `Checkpoint::files()`
  int64_t offset = 0;          // bytes from the start of the file
  int64_t bytes = 0;
  int64_t elements() const;
};

/// A folder whose files have been checked against each other: the layout of every tensor is known
/// and lies inside its file. Plain data after `open`; holds no open file.
class Checkpoint {
 public:
  /// Reads config.json, the index where there is one, and the header of every safetensors file on
  /// rank 0, refuses what is damaged or incomplete, and gives the result to all ranks. Takes, in
  /// this order, `model.safetensors`, the files named by `model.safetensors.index.json`, or a
  /// complete set
  /// `*-00001-of-0000N.safetensors`. Collective over `grid`.
  static Checkpoint open(const std::string& folder, const Grid& grid);

  const std::string& folder() const { return folder_; }
  /// Text of config.json.
  const std::string& config() const { return config_; }
  /// Names of the weight files inside the folder.
  const std::vector<std::string>& files() const { return files_; }
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  bool contains(const std::string& name) const { return tensors_.contains(name); }
  /// Refuses a name that the folder does not hold.
  const StoredTensor& at(const std::string& name) const;

  /// Elements [begin, end) of tensor `name` (flat, row-major), converted to the type of `into`,
  /// which is contiguous and has as many elements. F32, F16 and BF16 widen exactly; F64 is rounded
  /// to nearest even for float32. Any rank, at any time, on its own.
  void read(const std::string& name, Range elements, const Tensor& into) const;
  /// A digest that tells this checkpoint from others: of config.json, every tensor's name, type and
  /// shape, and samples of its bytes (first, middle, last 4 KiB). For one rank.
  std::string digest() const;

 private:
  Checkpoint() = default;
  std::string folder_, config_;
  std::vector<std::string> files_;
  std::map<std::string, StoredTensor> tensors_;
};

/// The file that tells how weights of ours came about; it belongs to them alone.
constexpr const char* origin_file = "longstraw.json";
/// The file that tells, where there are several of weights, which tensor is in which.
constexpr const char* index_file = "model.safetensors.index.json";
/// Bytes of a file of JSON that is read.
constexpr int64_t largest_json = 256 << 20;

/// New values of tensors, each rank its own elements. Both are called by one rank on its own.
struct NewValues {
  /// Elements of tensor `name` that this rank gives: none where others give them all. Nothing: the
  /// tensor has no new values, on any rank. The ranges of all ranks make up the tensor.
  std::function<std::optional<Range>(const std::string& name)> mine;
  /// Fills `values` with elements [begin, end) (flat, row-major) of those.
  std::function<void(const std::string& name, Range elements, const Tensor& values)> read;
};

/// What type tensors with new values are stored in: that of the source, or the one they are
/// computed in.
enum class StoredAs { source, computed };

/// The type that new values are computed in, and how they are stored.
struct WriteType {
  WriteType(DType type, StoredAs as = StoredAs::source) : computed(type), stored_as(as) {}
  DType computed;
  StoredAs stored_as;
};

/// Writes a checkpoint like `source` to the folder `out`: same files, names and types. Tensors with
/// new values (asked for in the computed type, in parts) are rounded to nearest even to their
/// stored type, the others and all other files of the folder (configuration, tokenizer, chat
/// template, but no other weights) are copied byte for byte; where types have changed,
/// configuration and index tell the new type and size. Rank 0 lays out the files in `out`.tmp and
/// takes their room; all ranks fill them, each with its own elements and its share of what is
/// copied; flushed to disk, the folder gets its config.json, without which it is no checkpoint, and
/// is renamed. An older `out` is replaced. Collective over `grid`.
void write_checkpoint(const std::string& out, const Checkpoint& source, const Grid& grid,
                      Ledger& ledger, WriteType type, const NewValues& values);

}  // namespace longstraw
