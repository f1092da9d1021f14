#include "longstraw/model/parameters.hpp"

namespace longstraw {

ParameterId ParameterList::add(std::string name, std::vector<int64_t> shape) {
  const int64_t count = elements_of(shape);
  list_.push_back({std::move(name), std::move(shape), size(), count});
  return ParameterId{static_cast<int32_t>(list_.size() - 1)};
}

Parameters::Parameters(Ledger& ledger, DType type, ParameterList list)
    : list_(std::move(list)),
      weights_(ledger, "weights", type, {list_.size()}),
      gradients_(Field::zeros(ledger, "gradient", type, {list_.size()})) {}

void Parameters::weight_fields(DumpFields& fields, const Grid& grid) const {
  for (const Parameter& p : list_.all())
    fields.placed({.path = "weights/" + p.name,
                   .type = weights_.tensor().type(),
                   .extents = p.shape,
                   .meaning = "trained parameter (master copy), shape as in the checkpoint"},
                  flat_pieces({p.offset, p.offset + p.size}, weights_, 0, grid.mine(list_.size())));
}

void Parameters::gradient_fields(DumpFields& fields, const Grid& grid) const {
  for (const Parameter& p : list_.all())
    fields.contributed(
        {.path = "gradient/" + p.name,
         .type = gradients_.tensor().type(),
         .extents = p.shape,
         .meaning = "gradient of the step's loss accumulated so far, by contributing rank"},
        flat_pieces({p.offset, p.offset + p.size}, gradients_, 0, grid.mine(list_.size())));
}

Tensor Parameters::matrix(const Tensor& flat, ParameterId id) const {
  const Parameter& p = list_[id];
  return vector(flat, id).reshape({p.shape[0], p.size / p.shape[0]});
}

Tensor Parameters::vector(const Tensor& flat, ParameterId id) const {
  const Parameter& p = list_[id];
  return flat.rows(p.offset, p.offset + p.size);
}

}  // namespace longstraw
