#include "atoll/nn/attention.h"

#include <algorithm>

#include "atoll/nn/kv_cache.h"
#include "atoll/ops/attention/attention_sinks.h"
#include "atoll/ops/copy_blocks/copy_blocks.h"
#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/ops/norm/norm.h"

namespace atl::nn {

namespace {

// kQkv is what attention reads: normalised and rotated. What the norms of queries and keys keep
// follows, and then what the core keeps.
enum Kept { kQkv, kOut, kOfNorm };
enum Owed { kDqkv, kOfNormOwed };

Tensor row_positions(const Pass& pass) {
  return pass.batch == nullptr ? Tensor() : pass.batch->positions;
}

constexpr std::int64_t kQueryKeyValue = 3;

// Where the queries, keys or values (`which` 0, 1, 2) of a row stand, head by head or together.
ops::BlockPlaces places_by_head(const ops::HeadLayout& heads, std::int64_t which) {
  return {which * heads.head_dim, heads.qkv_width(), kQueryKeyValue * heads.head_dim};
}
ops::BlockPlaces places_together(const ops::HeadLayout& heads, std::int64_t which) {
  return {which * heads.query_width(), heads.qkv_width(), heads.head_dim};
}

// `by_head`: (rows, heads, 3, head_dim).  `together`: (rows, 3, heads, head_dim).
void put_together(Run& run, const ops::HeadLayout& heads, const Tensor& by_head,
                  const Tensor& together) {
  for (std::int64_t which = 0; which < kQueryKeyValue; ++which) {
    ops::copy_blocks(run, {by_head.shape().num_rows(), heads.num_heads}, heads.head_dim, by_head,
                     places_by_head(heads, which), together, places_together(heads, which));
  }
}
void take_apart(Run& run, const ops::HeadLayout& heads, const Tensor& together,
                const Tensor& by_head) {
  for (std::int64_t which = 0; which < kQueryKeyValue; ++which) {
    ops::copy_blocks(run, {by_head.shape().num_rows(), heads.num_heads}, heads.head_dim, together,
                     places_together(heads, which), by_head, places_by_head(heads, which));
  }
}

}  // namespace

SelfAttention::SelfAttention(Options options, Linear qkv, Linear out, Param q_norm, Param k_norm,
                             std::unique_ptr<AttentionCore> core, Param sinks)
    : options_(options),
      qkv_(std::move(qkv)),
      out_(std::move(out)),
      norm_(options_.heads, options_.qk_norm, std::move(q_norm), std::move(k_norm)),
      core_(core ? std::move(core) : std::make_unique<WholeAttention>()),
      sinks_(std::move(sinks)) {
  const ops::HeadLayout& heads = options_.heads;
  ATOLL_CHECK(!options_.qkv_by_head || (heads.num_heads == heads.num_kv_heads && !norm_.exists()),
              "{} heads, {} key-value heads", heads.num_heads, heads.num_kv_heads);
}

Footprint SelfAttention::plan(Spec x) const {
  ATOLL_CHECK(x.shape.rank() == 3, "{}", x.to_string());
  const ops::HeadLayout& heads = options_.heads;
  const Footprint qkv = qkv_.plan(x);
  const Spec attended = x.with_last(heads.query_width());
  const Footprint out = out_.plan(attended);

  Footprint footprint;
  footprint.y = out.y;
  footprint.adds_residual = out.adds_residual;
  footprint.need_x = qkv.need_x;
  footprint.need_dy = kForInput | out.need_dy;
  footprint.kept = {qkv.y, attended};
  footprint.owed = {qkv.y};
  const AttentionCore::Footprint core = core_->plan(setup(), qkv.y);
  std::size_t scratch = std::max({qkv.scratch_bytes, out.scratch_bytes, core.scratch_bytes});
  scratch = std::max(scratch, norm_.plan(qkv.y, footprint));
  footprint.kept.insert(footprint.kept.end(), core.kept.begin(), core.kept.end());
  // Behind the rest: the gradient of the sinks.
  if (has_sinks()) {
    footprint.owed.push_back({compute_dtype(qkv.y.dtype), {heads.num_heads}});
  }
  // In B, the gradient of the attended values lies in front of the rest.
  footprint.scratch_bytes = align_up(attended.bytes()) + scratch;
  if (options_.qkv_by_head) footprint.scratch_bytes += align_up(qkv.y.bytes());
  return footprint;
}

void SelfAttention::rotate(Run& run, Tensor positions, bool inverse, Tensor qkv) const {
  if (options_.rope_table == nullptr) return;
  ops::rope(run, options_.heads, options_.rope_table->value, positions, inverse, qkv,
            options_.rotary_pairs);
}

// Queries, keys and values as attention reads them, not yet rotated.
void SelfAttention::project(Run& run, const Pass& pass, const Tensor& qkv) {
  if (options_.qkv_by_head) {
    Run inner = run;
    const Tensor by_head = inner.take_scratch(qkv.spec());
    qkv_.forward(inner, {.x = pass.x, .y = by_head});
    put_together(inner, options_.heads, by_head, qkv);
    return;
  }
  const Tensor projected = norm_.exists() ? pass.kept[kOfNorm] : qkv;
  qkv_.forward(run, {.x = pass.x, .y = projected});
  if (norm_.exists()) norm_.forward(run, pass.kept.subspan(kOfNorm), qkv);
}

// From the gradient of what attention reads, not rotated any more, to dx and what W is owed.
void SelfAttention::backward_project(Run& run, const Pass& pass, const Tensor& dqkv) {
  if (options_.qkv_by_head) take_apart(run, options_.heads, dqkv, pass.owed[kDqkv]);
  if (norm_.exists()) {
    norm_.backward_input(run, pass.kept.subspan(kOfNorm), dqkv, pass.owed.subspan(kOfNormOwed));
  }
  qkv_.backward_input(run, {.dx = pass.dx, .dy = pass.owed[kDqkv]});
}

void SelfAttention::forward(Run& run, const Pass& pass) {
  const Tensor qkv = pass.kept[kQkv];
  const Tensor attended = pass.kept[kOut];
  project(run, pass, qkv);
  const Tensor positions = row_positions(pass);
  rotate(run, positions, /*inverse=*/false, qkv);
  if (pass.cache != nullptr) {
    ATOLL_CHECK(positions.defined(), "a batch that continues a cache needs positions");
    attend_to_cache(run, positions, *pass.cache, qkv, attended, kept_by_core(pass).front());
  } else {
    core_->forward(run, setup(), pass.batch, qkv, attended, kept_by_core(pass));
  }
  out_.forward(run, {.x = attended, .y = pass.y, .residual = pass.residual});
}

void SelfAttention::attend_to_cache(Run& run, const Tensor& positions, const KvCache& cache,
                                    const Tensor& qkv, const Tensor& attended,
                                    const Tensor& kept_lse) const {
  const auto index = static_cast<std::size_t>(options_.index);
  const Tensor &keys = cache.keys[index], &values = cache.values[index];
  const Tensor lse = has_sinks() ? kept_lse : Tensor();
  if (cache.is_paged()) {
    ops::attention_paged(run, options_.heads, setup().scores(), options_.window, cache.sequences,
                         cache.block_size, qkv, keys, values, attended, lse);
    return setup().add_sinks(run, attended, lse);
  }
  ops::attention_cached(run, options_.heads, setup().scores(),
                        {.window = options_.window, .positions = positions}, cache.length, qkv,
                        keys, values, attended, lse);
  setup().add_sinks(run, attended, lse);
}

void SelfAttention::backward_input(Run& run, const Pass& pass) {
  const Tensor attended = pass.kept[kOut];
  Run inner = run;
  const Tensor dattended = inner.take_scratch(attended.spec());
  const Tensor dqkv =
      options_.qkv_by_head ? inner.take_scratch(pass.owed[kDqkv].spec()) : pass.owed[kDqkv];
  out_.backward_input(inner, {.dx = dattended, .dy = pass.dy});
  AttentionCore::Setup with_gradient = setup();
  if (has_sinks()) with_gradient.dsinks = pass.owed.back();
  core_->backward(inner, with_gradient, pass.batch, pass.kept[kQkv], attended, kept_by_core(pass),
                  dattended, dqkv);
  rotate(inner, row_positions(pass), /*inverse=*/true, dqkv);
  backward_project(inner, pass, dqkv);
}

void SelfAttention::backward_weight(Run& run, const Pass& pass) {
  qkv_.backward_weight(run, {.x = pass.x, .dy = pass.owed[kDqkv]});
  out_.backward_weight(run, {.x = pass.kept[kOut], .dy = pass.dy});
  if (norm_.exists()) {
    norm_.backward_weight(run, pass.x.shape().num_rows(), pass.owed.subspan(kOfNormOwed));
  }
  if (has_sinks() && !sinks_.frozen) ops::add(run, sinks_.grad, pass.owed.back(), sinks_.grad);
}

void SelfAttention::visit(ParamVisitor& visitor) {
  qkv_.visit(visitor);
  norm_.visit(visitor);
  if (has_sinks()) visitor.param(sinks_);
  out_.visit(visitor);
}

}  // namespace atl::nn
