#include "atoll/nn/attention.h"

#include <algorithm>

#include "atoll/nn/kv_cache.h"
#include "atoll/ops/elementwise.h"
#include "atoll/ops/norm.h"

namespace atl::nn {

namespace {

// kQkv is what attention reads: normalised and rotated. kProjected, what the projection gave, and
// the norms' statistics are there only under a norm.
enum Kept { kQkv, kOut, kLse, kProjected, kRstd };
enum Owed { kDqkv, kDnorms };

}  // namespace

SelfAttention::SelfAttention(Options options, Linear qkv, Linear out, Param q_norm, Param k_norm)
    : options_(options),
      qkv_(std::move(qkv)),
      out_(std::move(out)),
      q_norm_(std::move(q_norm)),
      k_norm_(std::move(k_norm)) {
  ATOLL_CHECK(q_norm_.name.empty() == k_norm_.name.empty(), "{} alone",
              q_norm_.name + k_norm_.name);
}

Footprint SelfAttention::plan(Spec x) const {
  ATOLL_CHECK(x.shape.rank() == 3, "{}", x.to_string());
  const ops::HeadLayout& heads = options_.heads;
  const Footprint qkv = qkv_.plan(x);
  const Spec attended = x.with_last(heads.query_width());
  const Footprint out = out_.plan(attended);
  const Dtype statistics = compute_dtype(x.dtype);

  Footprint footprint;
  footprint.y = out.y;
  footprint.need_x = qkv.need_x;
  footprint.need_dy = kForInput | out.need_dy;
  footprint.kept = {
      qkv.y, attended, {statistics, {x.shape.dim(0), heads.num_heads, x.shape.dim(1)}}};
  footprint.owed = {qkv.y};
  std::size_t scratch =
      std::max({qkv.scratch_bytes, out.scratch_bytes, ops::attention_scratch_bytes(heads, qkv.y)});
  if (has_qk_norm()) {
    footprint.kept.push_back(qkv.y);
    footprint.kept.push_back(
        {statistics, {x.shape.dim(0), x.shape.dim(1), heads.num_heads + heads.num_kv_heads}});
    footprint.owed.push_back({statistics, {2, heads.head_dim}});
    scratch = std::max(scratch, ops::qk_norm_scratch_bytes(heads, qkv.y));
  }
  // In B, the gradient of the attended values lies in front of the rest.
  footprint.scratch_bytes = align_up(attended.bytes()) + scratch;
  return footprint;
}

ops::AttentionMask SelfAttention::mask(const Pass& pass) const {
  return {.window = options_.window,
          .positions = pass.batch == nullptr ? Tensor() : pass.batch->positions};
}

void SelfAttention::rotate(Run& run, Tensor positions, bool inverse, Tensor qkv) const {
  if (options_.rope_table == nullptr) return;
  ops::rope(run, options_.heads, options_.rope_table->value, positions, inverse, qkv);
}

void SelfAttention::forward(Run& run, const Pass& pass) {
  const Tensor qkv = pass.kept[kQkv];
  const Tensor attended = pass.kept[kOut];
  const Tensor projected = has_qk_norm() ? pass.kept[kProjected] : qkv;
  qkv_.forward(run, {.x = pass.x, .y = projected});
  if (has_qk_norm()) {
    ops::qk_norm_forward(run, options_.heads, options_.qk_norm_eps, projected, q_norm_.value,
                         k_norm_.value, qkv, pass.kept[kRstd]);
  }
  const ops::AttentionMask seen = mask(pass);
  rotate(run, seen.positions, /*inverse=*/false, qkv);
  if (pass.cache != nullptr) {
    ATOLL_CHECK(seen.positions.defined(), "a batch that continues a cache needs positions");
    const auto index = static_cast<std::size_t>(options_.index);
    ops::attention_cached(run, options_.heads, options_.scale, seen, pass.cache->length, qkv,
                          pass.cache->keys[index], pass.cache->values[index], attended);
  } else {
    ops::attention_forward(run, options_.heads, options_.scale, seen, qkv, attended,
                           pass.kept[kLse]);
  }
  out_.forward(run, {.x = attended, .y = pass.y});
}

void SelfAttention::backward_input(Run& run, const Pass& pass) {
  const ops::HeadLayout& heads = options_.heads;
  const ops::AttentionMask seen = mask(pass);
  const Tensor attended = pass.kept[kOut];
  const Tensor dqkv = pass.owed[kDqkv];
  Run inner = run;
  const Tensor dattended = inner.take_scratch(attended.spec());
  out_.backward_input(inner, {.dx = dattended, .dy = pass.dy});
  ops::attention_backward(inner, heads, options_.scale, seen, pass.kept[kQkv], attended,
                          pass.kept[kLse], dattended, dqkv);
  rotate(inner, seen.positions, /*inverse=*/true, dqkv);
  if (has_qk_norm()) {
    ops::qk_norm_backward(inner, heads, pass.kept[kProjected], q_norm_.value, k_norm_.value,
                          pass.kept[kRstd], dqkv, dqkv, pass.owed[kDnorms]);
  }
  qkv_.backward_input(inner, {.dx = pass.dx, .dy = dqkv});
}

void SelfAttention::backward_weight(Run& run, const Pass& pass) {
  qkv_.backward_weight(run, {.x = pass.x, .dy = pass.owed[kDqkv]});
  out_.backward_weight(run, {.x = pass.kept[kOut], .dy = pass.dy});
  if (!has_qk_norm()) return;
  add_norm_gradient(run, pass.owed[kDnorms], 0, q_norm_);
  add_norm_gradient(run, pass.owed[kDnorms], 1, k_norm_);
}

void SelfAttention::add_norm_gradient(Run& run, const Tensor& dweights, std::int64_t row,
                                      Param& norm) const {
  if (norm.frozen) return;
  const Tensor gradient = dweights.rows(row, row + 1).reshaped({options_.heads.head_dim});
  ops::add(run, norm.grad, gradient, norm.grad);
}

void SelfAttention::visit(ParamVisitor& visitor) {
  qkv_.visit(visitor);
  if (has_qk_norm()) {
    visitor.param(q_norm_);
    visitor.param(k_norm_);
  }
  out_.visit(visitor);
}

}  // namespace atl::nn
