#include "longstraw/model/delta_mixer.hpp"

#include "longstraw/kernels/activation.hpp"
#include "longstraw/kernels/conv.hpp"
#include "longstraw/kernels/gemm.hpp"
#include "longstraw/kernels/norm.hpp"

#include <cmath>

namespace longstraw {
namespace {

// Added to the sum of squares under the root of the L2 norm of queries and keys (fixed in the
// family).
constexpr double l2_eps = 1e-6;

// Columns of `rows` for one head, out of [tokens, heads * dim] starting at `begin`.
Tensor head(const Tensor& rows, int64_t begin, int64_t index, int64_t dim) {
  return rows.columns(begin + index * dim, begin + (index + 1) * dim);
}

}  // namespace

struct DeltaMixer::Record : MixerRecord {
  Field x;          // [tokens, hidden]
  Field z;          // [tokens, value_heads * value_dim]
  Field inputs;     // [block tokens, local channels + 2 local heads]: before the convolution, a, b
  Field mixed;      // [block tokens, local channels]: after it
  Field q, k;       // [block tokens, local key heads, key_dim], normed
  Field g, beta;    // [block tokens, local heads]
  Field recurrent;  // state at the block's start
  Field tail;       // inputs before the block
  Field out;        // [tokens, value_heads * value_dim], the recurrence's output
};

DeltaMixer::DeltaMixer(const ModelConfig& config, int layer, ParameterList& list,
                       const std::string& prefix)
    : layer_(layer),
      key_heads_(config.linear_key_heads),
      value_heads_(config.linear_value_heads),
      key_dim_(config.linear_key_dim),
      value_dim_(config.linear_value_dim),
      taps_(config.conv_taps),
      norm_eps_(config.norm_eps) {
  const int64_t hidden = config.hidden, all_channels = config.conv_channels();
  qkv_ = list.add(prefix + "in_proj_qkv.weight", {all_channels, hidden});
  z_ = list.add(prefix + "in_proj_z.weight", {value_heads_ * value_dim_, hidden});
  b_ = list.add(prefix + "in_proj_b.weight", {value_heads_, hidden});
  a_ = list.add(prefix + "in_proj_a.weight", {value_heads_, hidden});
  conv_ = list.add(prefix + "conv1d.weight", {all_channels, 1, taps_});
  dt_bias_ = list.add(prefix + "dt_bias", {value_heads_});
  a_log_ = list.add(prefix + "A_log", {value_heads_});
  norm_ = list.add(prefix + "norm.weight", {value_dim_});
  out_ = list.add(prefix + "out_proj.weight", {hidden, value_heads_ * value_dim_});
}

DeltaMixer::Heads DeltaMixer::heads_of(const Grid& grid, int rank) const {
  const int64_t values_per_key = value_heads_ / key_heads_;
  const Range values = grid.part(value_heads_, rank);
  const Range keys = values.size() == 0 ? Range{0, 0}
                                        : Range{values.begin / values_per_key,
                                                (values.end + values_per_key - 1) / values_per_key};
  return {values, keys,
          HeadMap{.first_value_head = values.begin,
                  .first_key_head = keys.begin,
                  .values_per_key = values_per_key}};
}

int64_t DeltaMixer::channels(const Heads& heads) const {
  return 2 * heads.keys.size() * key_dim_ + heads.values.size() * value_dim_;
}

std::vector<Range> DeltaMixer::channel_ranges(const Heads& heads) const {
  const int64_t keys = key_heads_ * key_dim_;
  const Range q{heads.keys.begin * key_dim_, heads.keys.end * key_dim_};
  return {q,
          {keys + q.begin, keys + q.end},
          {2 * keys + heads.values.begin * value_dim_, 2 * keys + heads.values.end * value_dim_}};
}

void DeltaMixer::gather_conv_weight(const Tensor& to, const Tensor& weight,
                                    const Heads& heads) const {
  int64_t at = 0;
  for (const Range& range : channel_ranges(heads)) {
    copy(to.rows(at, at + range.size()), weight.rows(range.begin, range.end));
    at += range.size();
  }
}

ColumnExchange DeltaMixer::inputs_exchange(const Pass& pass) const {
  const int64_t all = 2 * key_heads_ * key_dim_ + value_heads_ * value_dim_;
  ColumnPlan plan;
  for (int r = 0; r < pass.context.grid.size(); ++r) {
    const Heads heads = heads_of(pass.context.grid, r);
    plan.push_back(channel_ranges(heads));
    plan.back().push_back({all + heads.values.begin, all + heads.values.end});
    plan.back().push_back(
        {all + value_heads_ + heads.values.begin, all + value_heads_ + heads.values.end});
  }
  return {pass.context, pass.block, std::move(plan)};
}

ColumnExchange DeltaMixer::outputs_exchange(const Pass& pass) const {
  ColumnPlan plan;
  for (int r = 0; r < pass.context.grid.size(); ++r) {
    const Range values = pass.context.grid.part(value_heads_, r);
    plan.push_back({{values.begin * value_dim_, values.end * value_dim_}});
  }
  return {pass.context, pass.block, std::move(plan)};
}

StateShape DeltaMixer::state_shape(const Grid& grid) const {
  const Heads heads = heads_of(grid, grid.rank());
  const int64_t wide = channels(heads), all = 2 * key_heads_ * key_dim_ + value_heads_ * value_dim_;
  const int64_t head = key_dim_ * value_dim_;
  StateShape::Carried recurrent{
      "recurrent", "recurrent gradient", {heads.values.size(), key_dim_, value_dim_}, {}, {}};
  recurrent.whole_extents = {value_heads_, key_dim_, value_dim_};
  recurrent.stretches = {{.whole = heads.values.begin * head, .size = heads.values.size() * head}};
  StateShape::Carried conv{"conv", "conv gradient", {1, taps_ - 1, wide}, {}, {}};
  conv.whole_extents = {taps_ - 1, all};
  conv.shared = true;
  // The first key head may have its first value head on a lower rank, which then owns it.
  const bool first_is_own =
      heads.keys.size() == 0 || heads.values.begin == heads.keys.begin * heads.map.values_per_key;
  for (int64_t tap = 0; tap + 1 < taps_; ++tap) {
    int64_t at = tap * wide;
    const auto stretch = [&](int64_t begin, int64_t size, bool own) {
      conv.stretches.push_back({.local = at, .whole = tap * all + begin, .size = size, .own = own});
      at += size;
    };
    const auto ranges = channel_ranges(heads);
    for (size_t i = 0; i < ranges.size(); ++i) {
      const bool is_key = i < 2;
      const int64_t shared = is_key && !first_is_own ? key_dim_ : 0;
      stretch(ranges[i].begin, shared, false);
      stretch(ranges[i].begin + shared, ranges[i].size() - shared, true);
    }
  }
  return {.paged = {}, .carried = {recurrent, conv}};
}

std::unique_ptr<MixerRecord> DeltaMixer::forward(const Pass& pass, const Tensor& y, Field x) const {
  const Context& ctx = pass.context;
  const Parameters& p = ctx.parameters;
  const int64_t tokens = y.extent(0), all = 2 * key_heads_ * key_dim_ + value_heads_ * value_dim_;
  auto record = std::make_unique<Record>();
  Record& r = *record;
  r.x = std::move(x);
  r.z = ctx.activation({tokens, value_heads_ * value_dim_});
  linear(ctx.stream, r.z, r.x, p.weight(z_));
  {
    const Field rows = ctx.scratch({tokens, all + 2 * value_heads_});
    const Tensor& to = rows;
    linear(ctx.stream, to.columns(0, all), r.x, p.weight(qkv_));
    linear(ctx.stream, to.columns(all, all + value_heads_), r.x, p.weight(a_));
    linear(ctx.stream, to.columns(all + value_heads_, all + 2 * value_heads_), r.x, p.weight(b_));
    r.inputs = inputs_exchange(pass).to_columns(rows);
  }
  recur(pass, r);
  const Field normed = ctx.scratch({tokens, value_heads_ * value_dim_});
  const auto per_head = [&](const Tensor& rows) {
    return rows.reshape({tokens * value_heads_, value_dim_});
  };
  gated_rms_norm(ctx.stream, per_head(normed), per_head(r.out), per_head(r.z),
                 p.weight_vector(norm_), norm_eps_);
  linear(ctx.stream, y, normed, p.weight(out_));
  return record;
}

void DeltaMixer::recur(const Pass& pass, Record& r) const {
  const Context& ctx = pass.context;
  const Parameters& p = ctx.parameters;
  const Heads heads = heads_of(ctx.grid, ctx.grid.rank());
  const int64_t tokens = pass.block.tokens(), wide = channels(heads);
  const int64_t keys = heads.keys.size(), values = heads.values.size();
  const Tensor inputs = r.inputs;
  LayerState& state = pass.state.layer(layer_);
  const Tensor tail = state.carried[1].tensor().reshape({taps_ - 1, wide});
  if (ctx.recording == Recording::on) {
    r.recurrent = ctx.activation({values, key_dim_, value_dim_});
    r.tail = ctx.activation({taps_ - 1, wide});
    copy(r.recurrent, state.carried[0]);
    copy(r.tail, tail);
  }
  {
    const Field weight = ctx.scratch({wide, taps_});
    gather_conv_weight(weight, p.weight(conv_), heads);
    r.mixed = ctx.activation({tokens, wide});
    causal_conv(ctx.stream, r.mixed, inputs.columns(0, wide), tail, weight);
  }
  advance_tail(ctx.stream, tail, inputs.columns(0, wide));
  r.q = ctx.activation({tokens, keys, key_dim_});
  r.k = ctx.activation({tokens, keys, key_dim_});
  const Tensor q = r.q.tensor().reshape({tokens, keys * key_dim_});
  const Tensor k = r.k.tensor().reshape({tokens, keys * key_dim_});
  for (int64_t h = 0; h < keys; ++h) {
    l2_norm(ctx.stream, head(q, 0, h, key_dim_), head(r.mixed, 0, h, key_dim_),
            1 / std::sqrt(static_cast<double>(key_dim_)), l2_eps);
    l2_norm(ctx.stream, head(k, 0, h, key_dim_), head(r.mixed, keys * key_dim_, h, key_dim_), 1,
            l2_eps);
  }
  r.g = ctx.activation({tokens, values});
  r.beta = ctx.activation({tokens, values});
  delta_gates(ctx.stream, r.g, r.beta, inputs.columns(wide, wide + values),
              inputs.columns(wide + values, wide + 2 * values),
              p.weight_vector(a_log_).rows(heads.values.begin, heads.values.end),
              p.weight_vector(dt_bias_).rows(heads.values.begin, heads.values.end));
  const Field out = ctx.scratch({tokens, values * value_dim_});
  {
    const Field workspace = ctx.scratch({delta_rule_workspace(tokens, key_dim_, value_dim_)});
    delta_rule(
        ctx.stream, out.tensor().reshape({tokens, values, value_dim_}), state.carried[0], r.q, r.k,
        r.mixed.tensor().columns(2 * keys * key_dim_, wide).reshape({tokens, values, value_dim_}),
        r.g, r.beta, heads.map, workspace);
  }
  r.out = Field::zeros(ctx.ledger, ctx.activation_label(), ctx.type(),
                       {r.x.tensor().extent(0), value_heads_ * value_dim_});
  outputs_exchange(pass).add_to_rows(r.out, out);
}

Field DeltaMixer::recur_backward(const Pass& pass, const Record& r, const Tensor& dout) const {
  const Context& ctx = pass.context;
  const Parameters& p = ctx.parameters;
  const Heads heads = heads_of(ctx.grid, ctx.grid.rank());
  const int64_t tokens = pass.block.tokens(), wide = channels(heads);
  const int64_t keys = heads.keys.size(), values = heads.values.size();
  LayerStateGradient& gradient = pass.gradient->layer(layer_);
  const Field dinputs = ctx.scratch({tokens, wide + 2 * values});
  const Tensor inputs = r.inputs, din = dinputs;
  const Field dmixed = ctx.scratch({tokens, wide});
  const Field dq = ctx.scratch({tokens, keys, key_dim_}),
              dk = ctx.scratch({tokens, keys, key_dim_});
  const Field dg = ctx.scratch({tokens, values}), dbeta = ctx.scratch({tokens, values});
  const auto values_of = [&](const Tensor& rows) {
    return rows.columns(2 * keys * key_dim_, wide).reshape({tokens, values, value_dim_});
  };
  {
    const Field dlocal = outputs_exchange(pass).to_columns(dout);
    const Field workspace =
        ctx.scratch({delta_rule_backward_workspace(tokens, key_dim_, value_dim_)});
    delta_rule_backward(ctx.stream, dq, dk, values_of(dmixed), dg, dbeta, gradient.carried[0],
                        dlocal.tensor().reshape({tokens, values, value_dim_}), r.recurrent, r.q,
                        r.k, values_of(r.mixed), r.g, r.beta, heads.map, workspace);
  }
  const auto own = [&](const Tensor& vector) {
    return vector.rows(heads.values.begin, heads.values.end);
  };
  delta_gates_backward(
      ctx.stream, din.columns(wide, wide + values), din.columns(wide + values, wide + 2 * values),
      own(p.gradient_vector(a_log_)), own(p.gradient_vector(dt_bias_)), dg, dbeta,
      inputs.columns(wide, wide + values), inputs.columns(wide + values, wide + 2 * values),
      own(p.weight_vector(a_log_)), own(p.weight_vector(dt_bias_)));
  const Tensor dq_rows = dq.tensor().reshape({tokens, keys * key_dim_});
  const Tensor dk_rows = dk.tensor().reshape({tokens, keys * key_dim_});
  for (int64_t h = 0; h < keys; ++h) {
    l2_norm_backward(ctx.stream, head(dmixed, 0, h, key_dim_), head(dq_rows, 0, h, key_dim_),
                     head(r.mixed, 0, h, key_dim_), 1 / std::sqrt(static_cast<double>(key_dim_)),
                     l2_eps);
    l2_norm_backward(ctx.stream, head(dmixed, keys * key_dim_, h, key_dim_),
                     head(dk_rows, 0, h, key_dim_), head(r.mixed, keys * key_dim_, h, key_dim_), 1,
                     l2_eps);
  }
  conv_backward(pass, r, din.columns(0, wide), dmixed);

  const int64_t all = 2 * key_heads_ * key_dim_ + value_heads_ * value_dim_;
  Field drows =
      Field::zeros(ctx.ledger, "scratch", ctx.type(), {dout.extent(0), all + 2 * value_heads_});
  inputs_exchange(pass).add_to_rows(drows, dinputs);
  return drows;
}

void DeltaMixer::conv_backward(const Pass& pass, const Record& r, const Tensor& dm,
                               const Tensor& dmixed) const {
  const Context& ctx = pass.context;
  const Parameters& p = ctx.parameters;
  const Heads heads = heads_of(ctx.grid, ctx.grid.rank());
  const int64_t wide = channels(heads);
  const Field weight = ctx.scratch({wide, taps_});
  const Field dweight = Field::zeros(ctx.ledger, "scratch", ctx.type(), {wide, taps_});
  gather_conv_weight(weight, p.weight(conv_), heads);
  const Tensor dtail = pass.gradient->layer(layer_).carried[1].tensor().reshape({taps_ - 1, wide});
  const Field dtail_next = ctx.scratch({taps_ - 1, wide});
  copy(dtail_next, dtail);
  causal_conv_backward(ctx.stream, dm, dtail, dweight, dmixed, dtail_next,
                       r.inputs.tensor().columns(0, wide), r.tail, weight);
  int64_t at = 0;
  for (const Range& range : channel_ranges(heads)) {
    add(ctx.stream, p.gradient(conv_).rows(range.begin, range.end),
        dweight.tensor().rows(at, at + range.size()));
    at += range.size();
  }
}

void DeltaMixer::backward(const Pass& pass, const Tensor& dx, const Tensor& dy,
                          const MixerRecord& record) const {
  const Context& ctx = pass.context;
  const Parameters& p = ctx.parameters;
  const auto& r = dynamic_cast<const Record&>(record);
  const int64_t tokens = dy.extent(0), all = 2 * key_heads_ * key_dim_ + value_heads_ * value_dim_;
  const Field dz = ctx.scratch({tokens, value_heads_ * value_dim_});
  const Field dout = ctx.scratch({tokens, value_heads_ * value_dim_});
  const auto per_head = [&](const Tensor& rows) {
    return rows.reshape({tokens * value_heads_, value_dim_});
  };
  {
    const Field normed = ctx.scratch({tokens, value_heads_ * value_dim_});
    const Field dnormed = ctx.scratch({tokens, value_heads_ * value_dim_});
    gated_rms_norm(ctx.stream, per_head(normed), per_head(r.out), per_head(r.z),
                   p.weight_vector(norm_), norm_eps_);
    linear_backward(ctx.stream, dnormed, p.gradient(out_), dy, normed, p.weight(out_));
    gated_rms_norm_backward(ctx.stream, per_head(dout), per_head(dz), p.gradient_vector(norm_),
                            per_head(dnormed), per_head(r.out), per_head(r.z),
                            p.weight_vector(norm_), norm_eps_);
  }
  linear_backward(ctx.stream, dx, p.gradient(z_), dz, r.x, p.weight(z_));
  const Field drows = recur_backward(pass, r, dout);
  const Tensor& d = drows;
  linear_backward(ctx.stream, dx, p.gradient(qkv_), d.columns(0, all), r.x, p.weight(qkv_), true);
  linear_backward(ctx.stream, dx, p.gradient(a_), d.columns(all, all + value_heads_), r.x,
                  p.weight(a_), true);
  linear_backward(ctx.stream, dx, p.gradient(b_),
                  d.columns(all + value_heads_, all + 2 * value_heads_), r.x, p.weight(b_), true);
}

}  // namespace longstraw
