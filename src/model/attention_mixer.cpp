#include "longstraw/model/attention_mixer.hpp"

#include "longstraw/kernels/activation.hpp"
#include "longstraw/kernels/gemm.hpp"
#include "longstraw/kernels/norm.hpp"
#include "longstraw/kernels/rope.hpp"
#include "longstraw/model/exchange.hpp"

#include <cmath>

namespace longstraw {
namespace {

// Queries gathered on every rank at a time: bounds scratch, large enough for the products.
constexpr int64_t gathered_queries = 1024;

}  // namespace

struct AttentionMixer::Record : MixerRecord {
  Field x;                  // [tokens, hidden]
  Field queries_and_gates;  // [tokens, heads * 2 dim], before the norm
  Field keys;               // [tokens, kv_heads * dim], before the norm
  Field q;                  // [tokens, heads * dim], normed and rotated
  Field out;                // [tokens, heads * dim], before the gate
  Field lse;                // [tokens, heads]
};

AttentionMixer::AttentionMixer(const ModelConfig& config, int layer, ParameterList& list,
                               const std::string& prefix)
    : layer_(layer),
      heads_(config.heads),
      kv_heads_(config.kv_heads),
      dim_(config.head_dim),
      norm_eps_(config.norm_eps),
      scale_(1 / std::sqrt(static_cast<double>(config.head_dim))),
      rope_(config.rope) {
  const int64_t hidden = config.hidden;
  q_proj_ = list.add(prefix + "q_proj.weight", {2 * heads_ * dim_, hidden});
  k_proj_ = list.add(prefix + "k_proj.weight", {kv_heads_ * dim_, hidden});
  v_proj_ = list.add(prefix + "v_proj.weight", {kv_heads_ * dim_, hidden});
  o_proj_ = list.add(prefix + "o_proj.weight", {hidden, heads_ * dim_});
  q_norm_ = list.add(prefix + "q_norm.weight", {dim_});
  k_norm_ = list.add(prefix + "k_norm.weight", {dim_});
}

StateShape AttentionMixer::state_shape(const Grid&) const {
  return {.paged = {{"keys", "keys gradient", kv_heads_ * dim_},
                    {"values", "values gradient", kv_heads_ * dim_}},
          .carried = {}};
}

// The projection packs [query | gate] per head: rows of one head each, [tokens * heads, dim].
Tensor AttentionMixer::queries(const Tensor& packed) const {
  return packed.reshape({packed.extent(0) * heads_, 2 * dim_}).columns(0, dim_);
}

Tensor AttentionMixer::gates(const Tensor& packed) const {
  return packed.reshape({packed.extent(0) * heads_, 2 * dim_}).columns(dim_, 2 * dim_);
}

std::unique_ptr<MixerRecord> AttentionMixer::forward(const Pass& pass, const Tensor& y,
                                                     Field x) const {
  const Context& ctx = pass.context;
  const Parameters& p = ctx.parameters;
  const int64_t tokens = y.extent(0);
  auto record = std::make_unique<Record>();
  Record& r = *record;
  r.x = std::move(x);
  r.queries_and_gates = ctx.activation({tokens, heads_ * 2 * dim_});
  r.keys = ctx.activation({tokens, kv_heads_ * dim_});
  r.q = ctx.activation({tokens, heads_ * dim_});
  r.out = ctx.activation({tokens, heads_ * dim_});
  r.lse = ctx.activation({tokens, heads_});
  linear(ctx.stream, r.queries_and_gates, r.x, p.weight(q_proj_));
  linear(ctx.stream, r.keys, r.x, p.weight(k_proj_));
  rms_norm(ctx.stream, r.q.tensor().reshape({tokens * heads_, dim_}), queries(r.queries_and_gates),
           p.weight_vector(q_norm_), NormWeight::zero_centred, norm_eps_);
  rope(ctx.stream, r.q.tensor().reshape({tokens, heads_, dim_}), pass.block.slice_positions,
       rope_.inv_freq, rope_.scale, Rotation::forward);

  LayerState& state = pass.state.layer(layer_);
  if (state.paged[0].rows() < pass.state.rows_before(pass.block.positions.end)) {
    Field k = ctx.scratch({tokens, kv_heads_ * dim_}), v = ctx.scratch({tokens, kv_heads_ * dim_});
    rms_norm(ctx.stream, k.tensor().reshape({tokens * kv_heads_, dim_}),
             r.keys.tensor().reshape({tokens * kv_heads_, dim_}), p.weight_vector(k_norm_),
             NormWeight::zero_centred, norm_eps_);
    rope(ctx.stream, k.tensor().reshape({tokens, kv_heads_, dim_}), pass.block.slice_positions,
         rope_.inv_freq, rope_.scale, Rotation::forward);
    linear(ctx.stream, v, r.x, p.weight(v_proj_));
    state.paged[0].append(k);
    state.paged[1].append(v);
  }
  attend(pass, r);

  Field gated = ctx.scratch({tokens, heads_ * dim_});
  sigmoid_gate(ctx.stream, gated.tensor().reshape({tokens * heads_, dim_}),
               r.out.tensor().reshape({tokens * heads_, dim_}), gates(r.queries_and_gates));
  linear(ctx.stream, y, gated, p.weight(o_proj_));
  return record;
}

std::vector<KeyPage> AttentionMixer::pages(const Pass& pass) const {
  const LayerState& state = pass.state.layer(layer_);
  const int64_t visible = pass.state.rows_before(pass.block.positions.end);
  std::vector<KeyPage> pages;
  for (int i = 0; i < state.paged[0].page_count(); ++i) {
    const Range range = state.paged[0].range(i);
    const int64_t rows = std::min(range.end, visible) - range.begin;
    if (rows <= 0) break;
    const auto heads_of = [&](const Tensor& page) {
      return page.order() == 0 ? Tensor() : page.rows(0, rows).reshape({rows, kv_heads_, dim_});
    };
    KeyPage page{.keys = heads_of(state.paged[0].page(i)),
                 .values = heads_of(state.paged[1].page(i)),
                 .positions = pass.state.positions().subspan(range.begin, rows),
                 .dkeys = {},
                 .dvalues = {}};
    if (pass.gradient != nullptr) {
      auto& gradient = pass.gradient->layer(layer_).paged;
      page.dkeys = heads_of(gradient[0].page(i, rows));
      page.dvalues = heads_of(gradient[1].page(i, rows));
    }
    pages.push_back(page);
  }
  return pages;
}

void AttentionMixer::attend(const Pass& pass, Record& record) const {
  const Context& ctx = pass.context;
  const auto keys = pages(pass);
  const int parts = QueryExchange::parts_for(pass.block, gathered_queries);
  for (int i = 0; i < parts; ++i) {
    const QueryExchange exchange(ctx, pass.block, parts, i);
    const Range mine = exchange.mine();
    const int64_t queries = exchange.gathered(), ranks = ctx.grid.size();
    const Field q = exchange.gather(record.q.tensor().rows(mine.begin, mine.end));
    const Field out = ctx.scratch({queries, heads_ * dim_}), lse = ctx.scratch({queries, heads_});
    {
      const Field workspace = ctx.scratch({attention_workspace(queries, heads_, kv_heads_, dim_)});
      attention(ctx.stream, out.tensor().reshape({queries, heads_, dim_}), lse,
                q.tensor().reshape({queries, heads_, dim_}), exchange.positions(), keys, scale_,
                workspace);
    }
    const Field outs = exchange.give_back(out), lses = exchange.give_back(lse);
    const int64_t own = mine.size();
    attention_merge(ctx.stream,
                    record.out.tensor().rows(mine.begin, mine.end).reshape({own, heads_, dim_}),
                    record.lse.tensor().rows(mine.begin, mine.end),
                    outs.tensor().reshape({ranks, own, heads_, dim_}), lses);
  }
}

Field AttentionMixer::attend_backward(const Pass& pass, const Record& record,
                                      const Tensor& dout) const {
  const Context& ctx = pass.context;
  const int64_t tokens = dout.extent(0);
  const Field delta = ctx.scratch({tokens, heads_});
  row_dot(ctx.stream, delta.tensor().reshape({tokens * heads_}),
          dout.reshape({tokens * heads_, dim_}),
          record.out.tensor().reshape({tokens * heads_, dim_}));
  Field dq = Field::zeros(ctx.ledger, "scratch", ctx.type(), {tokens, heads_ * dim_});
  const auto keys = pages(pass);
  const int parts = QueryExchange::parts_for(pass.block, gathered_queries);
  for (int i = 0; i < parts; ++i) {
    const QueryExchange exchange(ctx, pass.block, parts, i);
    const Range mine = exchange.mine();
    const int64_t queries = exchange.gathered();
    const auto gathered = [&](const Tensor& rows) {
      return exchange.gather(rows.rows(mine.begin, mine.end));
    };
    const Field q = gathered(record.q), lse = gathered(record.lse), all_dout = gathered(dout),
                all_delta = gathered(delta);
    const Field part = ctx.scratch({queries, heads_ * dim_});
    {
      const Field workspace = ctx.scratch({attention_workspace(queries, heads_, kv_heads_, dim_)});
      attention_backward(ctx.stream, part.tensor().reshape({queries, heads_, dim_}),
                         all_dout.tensor().reshape({queries, heads_, dim_}),
                         q.tensor().reshape({queries, heads_, dim_}), lse, all_delta,
                         exchange.positions(), keys, scale_, workspace);
    }
    const Field back = exchange.give_back(part);
    for (int r = 0; r < ctx.grid.size(); ++r)
      add(ctx.stream, dq.tensor().rows(mine.begin, mine.end),
          back.tensor().rows(r, r + 1).reshape({mine.size(), heads_ * dim_}));
  }
  return dq;
}

void AttentionMixer::backward(const Pass& pass, const Tensor& dx, const Tensor& dy,
                              const MixerRecord& record) const {
  const Context& ctx = pass.context;
  const Parameters& p = ctx.parameters;
  const auto& r = dynamic_cast<const Record&>(record);
  const int64_t tokens = dy.extent(0);
  const Tensor out = r.out.tensor().reshape({tokens * heads_, dim_});
  // [d query | d gate], packed as the projection packs them.
  const Field dpacked = ctx.scratch({tokens, heads_ * 2 * dim_});
  const Field dout = ctx.scratch({tokens, heads_ * dim_});
  const Tensor dout_rows = dout.tensor().reshape({tokens * heads_, dim_});
  {
    const Field gated = ctx.scratch({tokens, heads_ * dim_});
    sigmoid_gate(ctx.stream, gated.tensor().reshape({tokens * heads_, dim_}), out,
                 gates(r.queries_and_gates));
    linear_backward(ctx.stream, dout, p.gradient(o_proj_), dy, gated, p.weight(o_proj_));
  }
  sigmoid_gate_backward(ctx.stream, dout_rows, gates(dpacked), dout_rows, out,
                        gates(r.queries_and_gates));
  {
    const Field dq = attend_backward(pass, r, dout);
    rope(ctx.stream, dq.tensor().reshape({tokens, heads_, dim_}), pass.block.slice_positions,
         rope_.inv_freq, rope_.scale, Rotation::inverse);
    rms_norm_backward(ctx.stream, queries(dpacked), p.gradient_vector(q_norm_),
                      dq.tensor().reshape({tokens * heads_, dim_}), queries(r.queries_and_gates),
                      p.weight_vector(q_norm_), NormWeight::zero_centred, norm_eps_);
  }
  linear_backward(ctx.stream, dx, p.gradient(q_proj_), dpacked, r.x, p.weight(q_proj_));

  // Later blocks and branches have added theirs: the gradients of the block's own keys and values
  // are complete.
  auto& gradient = pass.gradient->layer(layer_).paged;
  const auto& paged = pass.state.layer(layer_).paged;
  const int64_t first = pass.state.rows_before(pass.block.positions.begin);
  const Field dkv = ctx.scratch({tokens, kv_heads_ * dim_});
  gradient[0].read(dkv, paged[0], {first, first + tokens});
  const Tensor dk_rows = dkv.tensor().reshape({tokens * kv_heads_, dim_});
  rope(ctx.stream, dkv.tensor().reshape({tokens, kv_heads_, dim_}), pass.block.slice_positions,
       rope_.inv_freq, rope_.scale, Rotation::inverse);
  rms_norm_backward(ctx.stream, dk_rows, p.gradient_vector(k_norm_), dk_rows,
                    r.keys.tensor().reshape({tokens * kv_heads_, dim_}), p.weight_vector(k_norm_),
                    NormWeight::zero_centred, norm_eps_);
  linear_backward(ctx.stream, dx, p.gradient(k_proj_), dkv, r.x, p.weight(k_proj_), true);
  gradient[1].read(dkv, paged[1], {first, first + tokens});
  linear_backward(ctx.stream, dx, p.gradient(v_proj_), dkv, r.x, p.weight(v_proj_), true);
}

}  // namespace longstraw
