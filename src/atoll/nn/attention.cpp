#include "atoll/nn/attention.h"

#include <algorithm>

#include "atoll/nn/kv_cache.h"
#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/ops/norm/norm.h"

namespace atl::nn {

namespace {

// kQkv is what attention reads: normalised and rotated. kProjected, what the projection gave, and
// the norms' statistics are there only under a norm. What the core keeps follows.
enum Kept { kQkv, kOut, kProjected, kRstd };
enum Owed { kDqkv, kDnorms };

Tensor row_positions(const Pass& pass) {
  return pass.batch == nullptr ? Tensor() : pass.batch->positions;
}

}  // namespace

SelfAttention::SelfAttention(Options options, Linear qkv, Linear out, Param q_norm, Param k_norm,
                             std::unique_ptr<AttentionCore> core)
    : options_(options),
      qkv_(std::move(qkv)),
      out_(std::move(out)),
      q_norm_(std::move(q_norm)),
      k_norm_(std::move(k_norm)),
      core_(core ? std::move(core) : std::make_unique<WholeAttention>()) {
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
  footprint.adds_residual = out.adds_residual;
  footprint.need_x = qkv.need_x;
  footprint.need_dy = kForInput | out.need_dy;
  footprint.kept = {qkv.y, attended};
  footprint.owed = {qkv.y};
  const AttentionCore::Footprint core = core_->plan(setup(), qkv.y);
  std::size_t scratch = std::max({qkv.scratch_bytes, out.scratch_bytes, core.scratch_bytes});
  if (has_qk_norm()) {
    footprint.kept.push_back(qkv.y);
    footprint.kept.push_back(
        {statistics, {x.shape.dim(0), x.shape.dim(1), heads.num_heads + heads.num_kv_heads}});
    footprint.owed.push_back({statistics, {2, heads.head_dim}});
    scratch = std::max(scratch, ops::qk_norm_scratch_bytes(heads, qkv.y));
  }
  footprint.kept.insert(footprint.kept.end(), core.kept.begin(), core.kept.end());
  // In B, the gradient of the attended values lies in front of the rest.
  footprint.scratch_bytes = align_up(attended.bytes()) + scratch;
  return footprint;
}

void SelfAttention::rotate(Run& run, Tensor positions, bool inverse, Tensor qkv) const {
  if (options_.rope_table == nullptr) return;
  ops::rope(run, options_.heads, options_.rope_table->value, positions, inverse, qkv,
            options_.rotary_pairs);
}

void SelfAttention::forward(Run& run, const Pass& pass) {
  const Tensor qkv = pass.kept[kQkv];
  const Tensor attended = pass.kept[kOut];
  const Tensor projected = has_qk_norm() ? pass.kept[kProjected] : qkv;
  qkv_.forward(run, {.x = pass.x, .y = projected});
  if (has_qk_norm()) {
    ops::qk_norm_forward(run, options_.heads, options_.qk_norm, projected, q_norm_.value,
                         k_norm_.value, qkv, pass.kept[kRstd]);
  }
  const Tensor positions = row_positions(pass);
  rotate(run, positions, /*inverse=*/false, qkv);
  if (pass.cache != nullptr) {
    ATOLL_CHECK(positions.defined(), "a batch that continues a cache needs positions");
    const auto index = static_cast<std::size_t>(options_.index);
    ops::attention_cached(run, options_.heads, setup().scores(),
                          {.window = options_.window, .positions = positions}, pass.cache->length,
                          qkv, pass.cache->keys[index], pass.cache->values[index], attended);
  } else {
    core_->forward(run, setup(), pass.batch, qkv, attended, kept_by_core(pass));
  }
  out_.forward(run, {.x = attended, .y = pass.y, .residual = pass.residual});
}

void SelfAttention::backward_input(Run& run, const Pass& pass) {
  const ops::HeadLayout& heads = options_.heads;
  const Tensor attended = pass.kept[kOut];
  const Tensor dqkv = pass.owed[kDqkv];
  Run inner = run;
  const Tensor dattended = inner.take_scratch(attended.spec());
  out_.backward_input(inner, {.dx = dattended, .dy = pass.dy});
  core_->backward(inner, setup(), pass.batch, pass.kept[kQkv], attended, kept_by_core(pass),
                  dattended, dqkv);
  rotate(inner, row_positions(pass), /*inverse=*/true, dqkv);
  if (has_qk_norm()) {
    ops::qk_norm_backward(inner, heads, options_.qk_norm, pass.kept[kProjected], q_norm_.value,
                          k_norm_.value, pass.kept[kRstd], dqkv, dqkv, pass.owed[kDnorms]);
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
