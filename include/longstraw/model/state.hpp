// What later tokens need of earlier ones, per layer: rows kept in pages (attention), and states
// that are carried along (gated delta rule). And the gradient of both.
#pragma once

#include "longstraw/core/dump_fields.hpp"
#include "longstraw/model/block.hpp"
#include "longstraw/model/context.hpp"
#include "longstraw/model/pages.hpp"

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace longstraw {

/// What a layer retains on this rank: `paged` rows of a width a token, and `carried` arrays.
struct StateShape {
  struct Paged {
    std::string_view label;
    std::string_view gradient_label;
    int64_t width;
  };
  /// Consecutive local elements and where they lie in the array over all ranks.
  struct Stretch {
    int64_t local = 0;
    int64_t whole = 0;
    int64_t size = 0;
    bool own = true;  ///< false: a lower rank holds the same elements
  };
  struct Carried {
    std::string_view label;
    std::string_view gradient_label;
    std::array<int64_t, 3> extents;      ///< on this rank
    std::vector<int64_t> whole_extents;  ///< over all ranks
    std::vector<Stretch> stretches;      ///< of all local elements
    bool shared = false;  ///< ranks hold the same elements, and each a part of their gradient
  };
  std::vector<Paged> paged;
  std::vector<Carried> carried;
};

/// State of one layer, as its `StateShape` says and in that order.
struct LayerState {
  std::vector<PagedRows> paged;
  std::vector<Field> carried;
};

/// Carried states of all layers at one moment: what restores a branch or a block's start.
using CarriedStates = std::vector<std::vector<Field>>;

/// Retained state of a sequence: of a prompt, and of the branch that continues it at the time.
class SequenceState {
 public:
  /// State before any token. `shapes` must outlive it.
  SequenceState(const Context& context, const std::vector<StateShape>& shapes, int64_t page_rows);

  /// A run of `rows` local tokens (a prompt's or a branch's) will follow, in pages of their own.
  void open(int64_t rows);
  /// Takes note of the block's tokens on this rank, unless they are there already. To be called
  /// before the layers run it.
  void enter(const Block& block);
  /// As entering a block at `positions`, of which `mine` are local, and running it, but for the
  /// values: rows are there for `fields` to fill.
  void resume(Range positions, Range mine);
  /// Position after the last token.
  int64_t end() const { return end_; }
  /// Local tokens at positions below `position`.
  int64_t rows_before(int64_t position) const;
  int64_t rows() const { return static_cast<int64_t>(positions_.size()); }
  /// Global positions of the local tokens, ascending.
  std::span<const int64_t> positions() const { return positions_; }
  /// Drops the tokens from `position` on.
  void truncate(int64_t position);

  CarriedStates carried(const Context& context, std::string_view label) const;
  void restore(const CarriedStates& saved);

  LayerState& layer(int index) { return layers_[index]; }
  const LayerState& layer(int index) const { return layers_[index]; }
  int layer_count() const { return static_cast<int>(layers_.size()); }

  /// Lists the pages' rows at `positions` as arrays `path`/LAYER/LABEL [positions, width]; they
  /// grow within the life `life`, unless it is empty.
  void paged_fields(DumpFields& fields, const std::string& path, Range positions,
                    const std::string& life) const;
  /// Lists the carried states.
  void carried_fields(DumpFields& fields, const std::string& path) const;

 private:
  const std::vector<StateShape>& shapes_;
  std::vector<LayerState> layers_;
  std::vector<int64_t, LedgerAllocator<int64_t>> positions_;
  int64_t end_ = 0;
};

/// Lists copies of the carried states of all layers as arrays `path`/LAYER/LABEL.
void carried_fields(DumpFields& fields, const std::string& path,
                    const std::vector<StateShape>& shapes, const CarriedStates& states);
/// Lists gradients of the carried states of all layers.
void carried_gradient_fields(DumpFields& fields, const std::string& path,
                             const std::vector<StateShape>& shapes, const CarriedStates& states);
/// Lists states of several moments, [moments, ...] an array, which grow within the life `life`.
void carried_series_fields(DumpFields& fields, const std::string& path,
                           const std::vector<StateShape>& shapes,
                           std::span<const CarriedStates* const> moments, const std::string& life);
/// Zeros of the shape of the carried states.
CarriedStates carried_zeros(const Context& context, std::string_view label,
                            const std::vector<StateShape>& shapes);

/// Gradient of one layer's state: of the pages from some page on, and of the carried states at the
/// block boundary that backward has reached.
struct LayerStateGradient {
  std::vector<PageGradients> paged;
  std::vector<Field> carried;
};

/// Gradient of a `SequenceState`.
class StateGradient {
 public:
  /// Zero, for the pages of `state` from the first one that holds row `first_row` on.
  StateGradient(const Context& context, const std::vector<StateShape>& shapes,
                const SequenceState& state, int64_t first_row);

  /// Zero gradients for pages that were added since.
  void extend(const SequenceState& state);
  /// Drops gradients of pages that hold only rows from `rows` on.
  void truncate(const SequenceState& state, int64_t rows);
  void clear_carried();
  void set_carried(const CarriedStates& values);
  /// Adds the gradient of the carried states to `sum`, which is made if it is empty.
  void add_carried_to(CarriedStates& sum, const Context& context) const;

  LayerStateGradient& layer(int index) { return layers_[index]; }
  int layer_count() const { return static_cast<int>(layers_.size()); }

  /// Lists the gradient of the pages' rows at `positions`, and of the carried states.
  void fields(DumpFields& fields, const std::string& path, const SequenceState& state,
              Range positions) const;

 private:
  const std::vector<StateShape>& shapes_;
  std::vector<LayerStateGradient> layers_;
};

}  // namespace longstraw
