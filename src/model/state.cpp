#include "longstraw/model/state.hpp"

#include "longstraw/kernels/activation.hpp"

#include <algorithm>

namespace longstraw {
namespace {

std::vector<Field> copies(const std::vector<Field>& fields, const Context& context,
                          std::string_view label) {
  std::vector<Field> made;
  for (const Tensor& from : fields) {
    made.emplace_back(
        context.ledger, label, from.type(),
        std::initializer_list<int64_t>{from.extent(0), from.extent(1), from.extent(2)});
    copy(made.back(), from);
  }
  return made;
}

}  // namespace

SequenceState::SequenceState(const Context& context, const std::vector<StateShape>& shapes,
                             int64_t page_rows)
    : shapes_(shapes), positions_(LedgerAllocator<int64_t>(context.ledger, "positions")) {
  for (const StateShape& shape : shapes) {
    LayerState layer;
    for (const auto& p : shape.paged)
      layer.paged.emplace_back(context.ledger, p.label, context.type(), page_rows, p.width);
    for (const auto& c : shape.carried)
      layer.carried.push_back(Field::zeros(context.ledger, c.label, context.type(),
                                           {c.extents[0], c.extents[1], c.extents[2]}));
    layers_.push_back(std::move(layer));
  }
}

void SequenceState::open(int64_t rows) {
  for (LayerState& layer : layers_)
    for (PagedRows& paged : layer.paged) paged.open(rows);
  positions_.reserve(positions_.size() + rows);
}

void SequenceState::enter(const Block& block) {
  for (int64_t position : block.slice_positions)
    if (positions_.empty() || positions_.back() < position) positions_.push_back(position);
  end_ = std::max(end_, block.positions.end);
}

void SequenceState::resume(Range positions, Range mine) {
  for (int64_t position = mine.begin; position < mine.end; ++position)
    positions_.push_back(position);
  end_ = positions.end;
  for (LayerState& layer : layers_)
    for (PagedRows& paged : layer.paged) paged.extend(mine.size());
}

int64_t SequenceState::rows_before(int64_t position) const {
  return std::lower_bound(positions_.begin(), positions_.end(), position) - positions_.begin();
}

void SequenceState::truncate(int64_t position) {
  const int64_t rows = rows_before(position);
  end_ = std::min(end_, position);
  for (LayerState& layer : layers_)
    for (PagedRows& paged : layer.paged) paged.truncate(rows);
  positions_.resize(rows);
}

CarriedStates SequenceState::carried(const Context& context, std::string_view label) const {
  CarriedStates saved;
  for (const LayerState& layer : layers_) {
    auto& fields = saved.emplace_back();
    for (const Field& field : layer.carried) {
      const Tensor& from = field;
      fields.emplace_back(
          context.ledger, label, from.type(),
          std::initializer_list<int64_t>{from.extent(0), from.extent(1), from.extent(2)});
      copy(fields.back(), from);
    }
  }
  return saved;
}

void SequenceState::restore(const CarriedStates& saved) {
  for (size_t l = 0; l < layers_.size(); ++l)
    for (size_t i = 0; i < saved[l].size(); ++i) copy(layers_[l].carried[i], saved[l][i]);
}

StateGradient::StateGradient(const Context& context, const std::vector<StateShape>& shapes,
                             const SequenceState& state, int64_t first_row)
    : shapes_(shapes) {
  for (size_t l = 0; l < shapes.size(); ++l) {
    LayerStateGradient layer;
    for (size_t i = 0; i < shapes[l].paged.size(); ++i) {
      const PagedRows& rows = state.layer(static_cast<int>(l)).paged[i];
      int first_page = 0;
      while (first_page < rows.page_count() && rows.range(first_page).end <= first_row)
        ++first_page;
      layer.paged.emplace_back(context.ledger, shapes[l].paged[i].gradient_label, first_page);
    }
    for (const auto& c : shapes[l].carried)
      layer.carried.push_back(Field::zeros(context.ledger, c.gradient_label, context.type(),
                                           {c.extents[0], c.extents[1], c.extents[2]}));
    layers_.push_back(std::move(layer));
  }
  extend(state);
}

void StateGradient::extend(const SequenceState& state) {
  for (int l = 0; l < layer_count(); ++l)
    for (size_t i = 0; i < layers_[l].paged.size(); ++i)
      layers_[l].paged[i].extend(state.layer(l).paged[i]);
}

void StateGradient::truncate(const SequenceState& state, int64_t rows) {
  for (int l = 0; l < layer_count(); ++l)
    for (size_t i = 0; i < layers_[l].paged.size(); ++i)
      layers_[l].paged[i].truncate(state.layer(l).paged[i], rows);
}

void StateGradient::clear_carried() {
  for (LayerStateGradient& layer : layers_)
    for (const Field& field : layer.carried) clear(field);
}

void StateGradient::set_carried(const CarriedStates& values) {
  for (size_t l = 0; l < layers_.size(); ++l)
    for (size_t i = 0; i < values[l].size(); ++i) copy(layers_[l].carried[i], values[l][i]);
}

void StateGradient::add_carried_to(CarriedStates& sum, const Context& context) const {
  const bool first = sum.empty();
  for (size_t l = 0; l < layers_.size(); ++l) {
    const auto& carried = layers_[l].carried;
    if (first) {
      sum.push_back(copies(carried, context, "boundary gradient"));
      continue;
    }
    for (size_t i = 0; i < carried.size(); ++i) add(context.stream, sum[l][i], carried[i]);
  }
}

}  // namespace longstraw
