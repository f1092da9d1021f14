#include "longstraw/sim/distance.hpp"

#include "longstraw/kernels/vectors.hpp"

#include <algorithm>
#include <cmath>

namespace longstraw {
namespace {

constexpr std::string_view layers = "layers.";

// "3" and "self_attn.k_proj" of "model.layers.3.self_attn.k_proj.weight"; no layer outside them.
struct Place {
  std::string layer;
  std::string kind;
};

Place place_of(std::string name) {
  constexpr std::string_view weight = ".weight";
  if (name.ends_with(weight)) name.resize(name.size() - weight.size());
  const size_t at = name.find(layers);
  if (at == std::string::npos) return {"", name.substr(name.rfind('.') + 1)};
  const size_t number = at + layers.size(), end = name.find('.', number);
  return {name.substr(number, end - number), name.substr(end + 1)};
}

template <class Key>
std::vector<NamedDistance> grouped(const std::vector<NamedDistance>& parameters, const Key& key) {
  std::vector<NamedDistance> groups;
  for (const auto& [name, distance] : parameters) {
    const std::string group = key(place_of(name));
    auto found = std::find_if(groups.begin(), groups.end(),
                              [&](const NamedDistance& known) { return known.name == group; });
    if (found == groups.end()) found = groups.insert(found, {group, {}});
    found->distance += distance;
  }
  return groups;
}

}  // namespace

double Distance::relative_l2() const {
  return difference == 0 ? 0 : std::sqrt(difference / reference);
}

double Distance::cosine() const { return product / std::sqrt(reference * other); }

Distance& Distance::operator+=(const Distance& more) {
  reference += more.reference, other += more.other;
  product += more.product, difference += more.difference;
  return *this;
}

std::vector<NamedDistance> distances(const Grid& grid, Stream& stream, const ParameterList& list,
                                     const ReducedGradient& other,
                                     const ReducedGradient& reference) {
  const Range mine = reference.mine();
  LONGSTRAW_ASSERT(mine == other.mine());
  std::vector<double> sums;
  for (const Parameter& p : list.all()) {
    const int64_t begin = std::clamp(p.offset, mine.begin, mine.end) - mine.begin;
    const int64_t end = std::clamp(p.offset + p.size, mine.begin, mine.end) - mine.begin;
    const Products s =
        products(stream, other.values().rows(begin, end), reference.values().rows(begin, end));
    sums.insert(sums.end(), {s.bb, s.aa, s.ab, s.difference});
  }
  grid.sum(sums);
  std::vector<NamedDistance> all;
  for (size_t i = 0; i < list.all().size(); ++i)
    all.push_back(
        {list.all()[i].name, {sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]}});
  return all;
}

Distance total(const std::vector<NamedDistance>& parameters) {
  Distance sum;
  for (const auto& parameter : parameters) sum += parameter.distance;
  return sum;
}

std::vector<NamedDistance> by_layer(const std::vector<NamedDistance>& parameters) {
  return grouped(parameters, [](const Place& place) {
    return place.layer.empty() ? place.kind : "layer " + place.layer;
  });
}

std::vector<NamedDistance> by_kind(const std::vector<NamedDistance>& parameters) {
  return grouped(parameters, [](const Place& place) { return place.kind; });
}

}  // namespace longstraw
