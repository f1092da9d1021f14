// Where model code runs, with which weights, and where it books what it allocates.
#pragma once

#include "longstraw/comm/grid.hpp"
#include "longstraw/core/field.hpp"
#include "longstraw/core/stream.hpp"
#include "longstraw/model/parameters.hpp"

namespace longstraw {

/// Whether a forward pass keeps what a backward pass of the same block needs.
enum class Recording { off, on };

/// Where model code runs, with which weights, and where it books what it allocates.
struct Context {
  const Grid& grid;
  Ledger& ledger;
  Stream& stream;
  const Parameters& parameters;
  Recording recording = Recording::off;

  /// Memory for the time of a call.
  Field scratch(std::initializer_list<int64_t> extents) const {
    return Field(ledger, "scratch", type(), extents);
  }
  /// Memory that a record keeps until the block's backward pass, when one is made.
  Field activation(std::initializer_list<int64_t> extents) const {
    return Field(ledger, activation_label(), type(), extents);
  }
  std::string_view activation_label() const {
    return recording == Recording::on ? "activations" : "scratch";
  }
  DType type() const { return parameters.weights().type(); }
  Context with(Recording kept) const { return {grid, ledger, stream, parameters, kept}; }
};

}  // namespace longstraw
