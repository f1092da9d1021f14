#include "bench/bench.hpp"
#include "bench/measure.hpp"
#include "longstraw/kernels/activation.hpp"
#include "longstraw/kernels/attention.hpp"
#include "longstraw/kernels/conv.hpp"
#include "longstraw/kernels/convert.hpp"
#include "longstraw/kernels/delta_rule.hpp"
#include "longstraw/kernels/gemm.hpp"
#include "longstraw/kernels/norm.hpp"
#include "longstraw/kernels/rope.hpp"

#include <cmath>
#include <numeric>

namespace longstraw::bench {
namespace {

// What every rank has of a block of the bench model, and enough memory for its kernels.
class Kernels {
 public:
  explicit Kernels(const Grid& grid) : grid_(grid) {}

  void linear_products(DType operands);
  void linear_of(DType operands, int64_t tokens, int64_t in, int64_t out);
  void rows(DType operands);
  void attention_over_pages(DType operands);
  void gated_delta_rule(DType operands);

 private:
  Field random(std::initializer_list<int64_t> extents) {
    Field field(ledger_, "bench", DType::float32, extents);
    for (int64_t i = 0; i < field.tensor().size(); ++i) {
      seed_ = seed_ * 6364136223846793005u + 1442695040888963407u;
      field.tensor().data<float>()[i] = static_cast<float>(seed_ >> 40) / (1 << 23) - 1;
    }
    return field;
  }
  /// Random numbers of the type that operands have.
  Field operand(DType type, std::initializer_list<int64_t> extents) {
    Field field = random(extents);
    return type == DType::float32 ? std::move(field) : rounded(field, extents);
  }
  Field rounded(const Field& from, std::initializer_list<int64_t> extents) {
    Field to(ledger_, "bench", DType::bfloat16, extents);
    convert(stream_, to, from);
    return to;
  }
  void line(const std::string& name, const std::function<void()>& act) {
    print_line(name, measure(grid_, ledger_, stream_, 5, act));
  }

  const Grid& grid_;
  Ledger ledger_;
  Stream stream_;
  uint64_t seed_ = 1;
};

void Kernels::linear_products(DType operands) {
  linear_of(operands, 1024, 512, 1536);
  linear_of(operands, 512, 1024, 1024);
  linear_of(operands, 2048, 2048, 2048);
  linear_of(operands, 8, 2048, 2048);
}

void Kernels::linear_of(DType operands, int64_t tokens, int64_t in, int64_t out) {
  const Field x = operand(operands, {tokens, in}), w = operand(operands, {out, in});
  const Field y = random({tokens, out}), dx = random({tokens, in}), dw = random({out, in});
  const Field dy = operand(operands, {tokens, out});
  const std::string name = str("linear {} x {} -> {}", tokens, in, out);
  line(name, [&] { linear(stream_, y, x, w); });
  line(name + ", backward", [&] { linear_backward(stream_, dx, dw, dy, x, w); });
}

void Kernels::rows(DType operands) {
  constexpr int64_t tokens = 1024, hidden = 512, wide = 1536, heads = 8, dim = 64, taps = 4;
  const Field x = random({tokens, hidden}), w = random({hidden});
  const Field y = operand(operands, {tokens, hidden});
  line("rms_norm 1024 x 512", [&] { rms_norm(stream_, y, x, w, NormWeight::zero_centred, 1e-6); });
  const Field g = random({tokens, wide}), u = random({tokens, wide});
  const Field z = operand(operands, {tokens, wide});
  line("swiglu 1024 x 1536", [&] { swiglu(stream_, z, g, u); });
  if (operands == DType::bfloat16) {
    line("convert 1024 x 1536, to bfloat16", [&] { convert(stream_, z, g); });
    line("convert 1024 x 1536, to float32", [&] { convert(stream_, g, z); });
    return;
  }
  std::vector<int64_t> positions(tokens);
  std::iota(positions.begin(), positions.end(), 8192);
  const std::vector<double> inv_freq(dim / 8, 0.5);
  line("rope 1024 x 8 x 64", [&] {
    rope(stream_, x.tensor().reshape({tokens, heads, dim}), positions, inv_freq, 1,
         Rotation::forward);
  });
  const Field tail = random({taps - 1, wide}), kernel = random({wide, taps});
  line("causal_conv 1024 x 1536", [&] { causal_conv(stream_, z, g, tail, kernel); });
}

void Kernels::attention_over_pages(DType operands) {
  constexpr int64_t queries = 1024, keys = 8192, page = 4096, heads = 8, kv_heads = 2, dim = 64;
  const Field q = operand(operands, {queries, heads, dim}), out = random({queries, heads, dim});
  const Field lse = random({queries, heads}), delta = random({queries, heads});
  const Field k = operand(operands, {keys, kv_heads, dim});
  const Field v = operand(operands, {keys, kv_heads, dim});
  const Field dk = random({keys, kv_heads, dim}), dv = random({keys, kv_heads, dim});
  const Field workspace = random({attention_workspace(queries, heads, kv_heads, dim, operands)});
  std::vector<int64_t> positions(keys + queries);
  std::iota(positions.begin(), positions.end(), 0);
  std::vector<KeyPage> pages, with_gradient;
  for (int64_t i = 0; i < keys; i += page) {
    KeyPage one{.keys = k.tensor().rows(i, i + page),
                .values = v.tensor().rows(i, i + page),
                .positions = std::span(positions).subspan(i, page),
                .dkeys = {},
                .dvalues = {}};
    pages.push_back(one);
    one.dkeys = dk.tensor().rows(i, i + page), one.dvalues = dv.tensor().rows(i, i + page);
    with_gradient.push_back(one);
  }
  const auto at = std::span(positions).subspan(keys, queries);
  line("attention 1024 x 8192, 8 heads of 64",
       [&] { attention(stream_, out, lse, q, at, pages, 0.125, workspace); });
  const Field dq = random({queries, heads, dim});
  const Field dout = operand(operands, {queries, heads, dim});
  line("attention backward, no key gradients",
       [&] { attention_backward(stream_, dq, dout, q, lse, delta, at, pages, 0.125, workspace); });
  line("attention backward", [&] {
    attention_backward(stream_, dq, dout, q, lse, delta, at, with_gradient, 0.125, workspace);
  });
}

void Kernels::gated_delta_rule(DType operands) {
  constexpr int64_t tokens = 2048, heads = 4, key_heads = 2, dim = 64;
  const Field raw = random({tokens, key_heads * dim});
  const Field q = operand(operands, {tokens, key_heads, dim});
  const Field k = operand(operands, {tokens, key_heads, dim});
  for (int64_t h = 0; h < key_heads; ++h)
    for (const Field* normed : {&q, &k})
      l2_norm(stream_,
              normed->tensor().reshape({tokens, key_heads * dim}).columns(h * dim, (h + 1) * dim),
              raw.tensor().columns(h * dim, (h + 1) * dim), 1, 1e-6);
  const Field v = operand(operands, {tokens, heads, dim}), out = random({tokens, heads, dim});
  const Field g = random({tokens, heads}), beta = random({tokens, heads});
  for (int64_t i = 0; i < g.tensor().size(); ++i) {
    g.tensor().data<float>()[i] = -0.05f;
    beta.tensor().data<float>()[i] = 0.5f;
  }
  const Field state = Field::zeros(ledger_, "bench", DType::float32, {heads, dim, dim});
  const HeadMap map{.values_per_key = heads / key_heads};
  const Field workspace = random({std::max(delta_rule_workspace(tokens, dim, dim),
                                           delta_rule_backward_workspace(tokens, dim, dim))});
  line("delta_rule 2048 x 4 heads of 64",
       [&] { delta_rule(stream_, out, state, q, k, v, g, beta, map, workspace); });
  const Field dq = random({tokens, key_heads, dim}), dk = random({tokens, key_heads, dim});
  const Field dv = random({tokens, heads, dim}), dg = random({tokens, heads});
  const Field dbeta = random({tokens, heads}), dout = operand(operands, {tokens, heads, dim});
  const Field dstate = Field::zeros(ledger_, "bench", DType::float32, {heads, dim, dim});
  line("delta_rule backward", [&] {
    delta_rule_backward(stream_, dq, dk, dv, dg, dbeta, dstate, dout, state, q, k, v, g, beta, map,
                        workspace);
  });
}

}  // namespace

void bench_kernels(const Grid& grid) {
  for (const DType operands : {DType::float32, DType::bfloat16}) {
    print_heading(str("kernels, operands {}, on every rank at once", name_of(operands)));
    Kernels kernels(grid);
    kernels.linear_products(operands);
    kernels.rows(operands);
    kernels.attention_over_pages(operands);
    kernels.gated_delta_rule(operands);
  }
}

}  // namespace longstraw::bench
