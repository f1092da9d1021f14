#include "longstraw/model/state.hpp"

namespace longstraw {
namespace {

std::string array_path(const std::string& path, size_t layer, std::string_view label) {
  std::string name(label);
  for (char& c : name)
    if (c == ' ') c = '_';
  return str("{}/{:03}/{}", path, layer, name);
}

std::vector<DumpPiece> pieces_of(const StateShape::Carried& shape, const Tensor& values,
                                 int64_t first = 0) {
  const Tensor flat = values.reshape({values.size()});
  std::vector<DumpPiece> pieces;
  for (const auto& s : shape.stretches)
    pieces.push_back(
        {.first = first + s.whole, .values = flat.rows(s.local, s.local + s.size), .own = s.own});
  return pieces;
}

// act(path, shape, values) for every carried array, of which `values_of(layer, i)` are this rank's.
template <class Values, class Act>
void for_each_carried(const std::string& path, const std::vector<StateShape>& shapes,
                      const Values& values_of, const Act& act) {
  for (size_t l = 0; l < shapes.size(); ++l)
    for (size_t i = 0; i < shapes[l].carried.size(); ++i) {
      const StateShape::Carried& shape = shapes[l].carried[i];
      act(array_path(path, l, shape.label), shape, values_of(l, i));
    }
}

void gradient_field(DumpFields& fields, const std::string& path, const StateShape::Carried& shape,
                    const Tensor& values) {
  const DumpArray array{.path = path,
                        .type = values.type(),
                        .extents = shape.whole_extents,
                        .meaning =
                            "gradient of the carried state at the block boundary that "
                            "backward has reached"};
  if (shape.shared)
    fields.contributed(array, pieces_of(shape, values));
  else
    fields.placed(array, pieces_of(shape, values));
}

// The values of `states`, a list of arrays by layer.
template <class Layers>
auto values_in(const Layers& layers) {
  return [&layers](size_t l, size_t i) -> Tensor { return layers[l][i]; };
}

constexpr const char* carried_meaning =
    "state carried from token to token: recurrent [value heads, key_dim, value_dim], conv [earlier "
    "tokens, channels]";

void state_field(DumpFields& fields, const std::string& path, const StateShape::Carried& shape,
                 const Tensor& values) {
  fields.placed({.path = path,
                 .type = values.type(),
                 .extents = shape.whole_extents,
                 .meaning = carried_meaning},
                pieces_of(shape, values));
}

}  // namespace

void SequenceState::paged_fields(DumpFields& fields, const std::string& path, Range positions,
                                 const std::string& life) const {
  for (size_t l = 0; l < layers_.size(); ++l)
    for (const PagedRows& rows : layers_[l].paged) {
      const DumpArray array{.path = array_path(path, l, rows.label()),
                            .type = rows.type(),
                            .extents = {positions.size(), rows.width()},
                            .meaning = "retained rows, [positions, kv_heads * head_dim]"};
      const auto pieces = rows.pieces(positions_, positions);
      if (life.empty())
        fields.placed(array, pieces);
      else
        fields.grown(array, pieces, life);
    }
}

void SequenceState::carried_fields(DumpFields& fields, const std::string& path) const {
  for_each_carried(
      path, shapes_, [&](size_t l, size_t i) -> Tensor { return layers_[l].carried[i]; },
      [&](const auto&... of) { state_field(fields, of...); });
}

void carried_fields(DumpFields& fields, const std::string& path,
                    const std::vector<StateShape>& shapes, const CarriedStates& states) {
  for_each_carried(path, shapes, values_in(states),
                   [&](const auto&... of) { state_field(fields, of...); });
}

void carried_gradient_fields(DumpFields& fields, const std::string& path,
                             const std::vector<StateShape>& shapes, const CarriedStates& states) {
  for_each_carried(path, shapes, values_in(states),
                   [&](const auto&... of) { gradient_field(fields, of...); });
}

void carried_series_fields(DumpFields& fields, const std::string& path,
                           const std::vector<StateShape>& shapes,
                           std::span<const CarriedStates* const> moments, const std::string& life) {
  if (moments.empty()) return;
  for (size_t l = 0; l < shapes.size(); ++l)
    for (size_t i = 0; i < shapes[l].carried.size(); ++i) {
      const StateShape::Carried& shape = shapes[l].carried[i];
      DumpArray array{.path = array_path(path, l, shape.label),
                      .type = (*moments[0])[l][i].tensor().type(),
                      .extents = {std::ssize(moments)},
                      .meaning = str("[saved moments, ...], each: {}", carried_meaning)};
      array.extents.insert(array.extents.end(), shape.whole_extents.begin(),
                           shape.whole_extents.end());
      const int64_t size = elements_of(shape.whole_extents);
      std::vector<DumpPiece> pieces;
      for (size_t m = 0; m < moments.size(); ++m)
        for (const DumpPiece& piece :
             pieces_of(shape, (*moments[m])[l][i], static_cast<int64_t>(m) * size))
          pieces.push_back(piece);
      fields.grown(array, pieces, life);
    }
}

CarriedStates carried_zeros(const Context& context, std::string_view label,
                            const std::vector<StateShape>& shapes) {
  CarriedStates made;
  for (const StateShape& shape : shapes) {
    auto& fields = made.emplace_back();
    for (const auto& c : shape.carried)
      fields.push_back(Field::zeros(context.ledger, label, context.type(),
                                    {c.extents[0], c.extents[1], c.extents[2]}));
  }
  return made;
}

void StateGradient::fields(DumpFields& fields, const std::string& path, const SequenceState& state,
                           Range positions) const {
  for (size_t l = 0; l < layers_.size(); ++l)
    for (size_t i = 0; i < layers_[l].paged.size(); ++i) {
      const PagedRows& rows = state.layer(static_cast<int>(l)).paged[i];
      fields.placed({.path = array_path(path, l, rows.label()),
                     .type = rows.type(),
                     .extents = {positions.size(), rows.width()},
                     .meaning = "gradient of retained rows so far, [positions, kv_heads * "
                                "head_dim]"},
                    layers_[l].paged[i].pieces(rows, state.positions(), positions));
    }
  for_each_carried(
      path, shapes_, [&](size_t l, size_t i) -> Tensor { return layers_[l].carried[i]; },
      [&](const auto&... of) { gradient_field(fields, of...); });
}

}  // namespace longstraw
