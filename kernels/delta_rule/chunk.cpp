#include "delta_rule/chunk.hpp"

namespace longstraw::delta_rule_chunk {

Shape checked_shape(const Tensor& state, const Tensor& q, const Tensor& k, const Tensor& v,
                    const Tensor& g, const Tensor& beta, const HeadMap& map) {
  LONGSTRAW_ASSERT(q.order() == 3 && k.order() == 3 && v.order() == 3 && state.order() == 3);
  const Shape shape{q.extent(0), q.extent(1), v.extent(1), q.extent(2), v.extent(2)};
  LONGSTRAW_ASSERT(k.extent(0) == shape.tokens && v.extent(0) == shape.tokens);
  LONGSTRAW_ASSERT(k.extent(1) == shape.key_heads && k.extent(2) == shape.dk);
  LONGSTRAW_ASSERT(state.contiguous() && state.extent(0) == shape.heads);
  LONGSTRAW_ASSERT(state.extent(1) == shape.dk && state.extent(2) == shape.dv);
  LONGSTRAW_ASSERT(g.contiguous() && g.size() == shape.tokens * shape.heads);
  LONGSTRAW_ASSERT(beta.contiguous() && beta.size() == shape.tokens * shape.heads);
  const DType type = state.type();
  LONGSTRAW_ASSERT(compute_type(q.type()) == type && compute_type(k.type()) == type);
  LONGSTRAW_ASSERT(compute_type(v.type()) == type && g.type() == type && beta.type() == type);
  LONGSTRAW_ASSERT(shape.heads == 0 ||
                   (map.key_head(0) >= 0 && map.key_head(shape.heads - 1) < shape.key_heads));
  return shape;
}

}  // namespace longstraw::delta_rule_chunk
