// How far two gradients are apart: in total, by parameter, by layer, and by kind of parameter.
#pragma once

#include "longstraw/sim/reduced_gradient.hpp"

#include <string>
#include <vector>

namespace longstraw {

/// Sums over the elements of some parameters, of a gradient `other` and one it is measured against.
struct Distance {
  double reference = 0;  ///< sum of squares
  double other = 0;      ///< sum of squares
  double product = 0;
  double difference = 0;  ///< sum of squares of other - reference

  /// |other - reference| / |reference|; zero where both are zero.
  double relative_l2() const;
  /// Of the angle between them; not a number where one of them is zero.
  double cosine() const;
  Distance& operator+=(const Distance& more);
};

struct NamedDistance {
  std::string name;
  Distance distance;
};

/// By parameter, in the order of the list, which both gradients are of. Collective over `grid`.
std::vector<NamedDistance> distances(const Grid& grid, Stream& stream, const ParameterList& list,
                                     const ReducedGradient& other,
                                     const ReducedGradient& reference);

/// Sums over groups of parameters, in the order in which they first appear.
Distance total(const std::vector<NamedDistance>& parameters);
/// "layer 3"; a parameter outside the layers under its own name ("embed_tokens").
std::vector<NamedDistance> by_layer(const std::vector<NamedDistance>& parameters);
/// Name within the layer ("self_attn.k_proj"), over all layers.
std::vector<NamedDistance> by_kind(const std::vector<NamedDistance>& parameters);

}  // namespace longstraw
