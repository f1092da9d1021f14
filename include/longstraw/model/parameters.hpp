// The trained tensors of a model: one flat array of weights and one of their gradient, with a name,
// a shape and a place for each parameter.
#pragma once

#include "longstraw/comm/grid.hpp"
#include "longstraw/core/dump_fields.hpp"
#include "longstraw/core/field.hpp"
#include "longstraw/model/config.hpp"

#include <span>
#include <string>
#include <vector>

namespace longstraw {

/// Index of a parameter in its list.
enum class ParameterId : int32_t {};

/// One trained tensor: its name in the checkpoint, its shape there, and where it starts in the flat
/// arrays.
struct Parameter {
  std::string name;
  std::vector<int64_t> shape;
  int64_t offset = 0;
  int64_t size = 0;
};

/// Parameters of a model in the order of use. Made before anything is allocated, so that a
/// checkpoint can be held against it.
class ParameterList {
 public:
  ParameterId add(std::string name, std::vector<int64_t> shape);
  const Parameter& operator[](ParameterId id) const { return list_[static_cast<size_t>(id)]; }
  std::span<const Parameter> all() const { return list_; }
  /// Elements of all parameters.
  int64_t size() const { return list_.empty() ? 0 : list_.back().offset + list_.back().size; }

 private:
  std::vector<Parameter> list_;
};

/// Weights and accumulated gradient of every parameter, whole on each rank (`weights =
/// replicated`).
class Parameters {
 public:
  Parameters(Ledger& ledger, DType type, ParameterList list);

  const ParameterList& list() const { return list_; }
  /// A parameter as a matrix: first extent, and the product of the others.
  Tensor weight(ParameterId id) const { return matrix(weights_, id); }
  Tensor gradient(ParameterId id) const { return matrix(gradients_, id); }
  /// A parameter of one dimension.
  Tensor weight_vector(ParameterId id) const { return vector(weights_, id); }
  Tensor gradient_vector(ParameterId id) const { return vector(gradients_, id); }
  /// All of them, flat [size].
  const Tensor& weights() const { return weights_; }
  const Tensor& gradients() const { return gradients_; }

  /// Lists the weights, one array a parameter. Each rank owns its part of the flat arrays.
  void weight_fields(DumpFields& fields, const Grid& grid) const;
  /// Lists what the ranks have added to the gradient of the step so far.
  void gradient_fields(DumpFields& fields, const Grid& grid) const;

 private:
  Tensor matrix(const Tensor& flat, ParameterId id) const;
  Tensor vector(const Tensor& flat, ParameterId id) const;

  ParameterList list_;
  Field weights_;
  Field gradients_;
};

}  // namespace longstraw
