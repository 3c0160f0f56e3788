#include "atoll/nn/latent/latent_attention.h"

#include <algorithm>

#include "atoll/nn/kv_cache.h"
#include "atoll/ops/elementwise/elementwise.h"

namespace atl::nn {

namespace {

// kQkv is what attention reads, rotated. kLatent is c, and kNormed its norm. What the queries'
// latent keeps follows where there is one, and then what the core keeps.
enum Kept { kQkv, kOut, kLatent, kNormed, kRstd, kQueryLatent, kQueryNormed, kQueryRstd };
constexpr std::size_t kOfOneLatent = kQueryLatent, kOfTwo = kQueryRstd + 1;
// Gradients for W, and the sums that those of the norms' weights are made of.
enum Owed { kDquery, kDkeyValue, kDdown, kLatentSums, kDqueryLatent, kQuerySums };

std::size_t padded(const Spec& spec) {
  return align_up(spec.bytes());
}

}  // namespace

LatentAttention::LatentAttention(Options options, Projections projections,
                                 std::unique_ptr<AttentionCore> core)
    : options_(options),
      to_(std::move(projections)),
      core_(core ? std::move(core) : std::make_unique<WholeAttention>()) {
  const ops::HeadLayout& heads = options_.heads;
  const LatentShape& shape = options_.shape;
  ATOLL_CHECK(heads.num_heads == heads.num_kv_heads && heads.head_dim == shape.head_dim() &&
                  has_query_latent() == (shape.query_rank > 0),
              "{} heads of {}, {} key-value heads", heads.num_heads, heads.head_dim,
              heads.num_kv_heads);
}

std::size_t LatentAttention::kept_before_core() const {
  return has_query_latent() ? kOfTwo : kOfOneLatent;
}

LatentAttention::Specs LatentAttention::specs(const Spec& x) const {
  const ops::HeadLayout& heads = options_.heads;
  const LatentShape& shape = options_.shape;
  return {.qkv = x.with_last(heads.qkv_width()),
          .attended = x.with_last(heads.query_width()),
          .values = x.with_last(heads.num_heads * shape.value_dim),
          .query = x.with_last(heads.num_heads * shape.query_dim()),
          .key_value = x.with_last(heads.num_heads * (shape.content_dim + shape.value_dim)),
          .down = x.with_last(shape.kv_rank + shape.rotary_dim),
          .latent = x.with_last(shape.kv_rank),
          .query_latent = x.with_last(std::max<std::int64_t>(shape.query_rank, 1)),
          .statistics = {compute_dtype(x.dtype), {x.shape.num_rows()}}};
}

Footprint LatentAttention::plan(Spec x) const {
  ATOLL_CHECK(x.shape.rank() == 3, "{}", x.to_string());
  const Specs spec = specs(x);
  const Footprint query = to_.query.plan(has_query_latent() ? spec.query_latent : x);
  const Footprint latent = to_.latent.plan(x);
  const Footprint key_value = to_.key_value.plan(spec.latent);
  const Footprint out = to_.out.plan(spec.values);
  const AttentionCore::Footprint core = core_->plan(setup(), spec.qkv);

  Footprint footprint;
  footprint.y = out.y;
  footprint.adds_residual = out.adds_residual;
  footprint.need_x = query.need_x | latent.need_x;
  footprint.need_dy = kForInput | out.need_dy;
  footprint.kept = {spec.qkv, spec.attended, spec.latent, spec.latent, spec.statistics};
  footprint.owed = {spec.query, spec.key_value, spec.down, ops::norm_sums_spec(spec.latent, 1)};
  std::size_t of_queries = query.scratch_bytes;
  if (has_query_latent()) {
    const Footprint down = to_.query_down->plan(x);
    footprint.need_x |= down.need_x;
    footprint.kept.insert(footprint.kept.end(),
                          {spec.query_latent, spec.query_latent, spec.statistics});
    footprint.owed.push_back(spec.query_latent);
    footprint.owed.push_back(ops::norm_sums_spec(spec.query_latent, 1));
    of_queries = padded(spec.query_latent) + std::max(of_queries, down.scratch_bytes);
  }
  footprint.kept.insert(footprint.kept.end(), core.kept.begin(), core.kept.end());

  // Forward: what a projection gives before its parts go to their places. B: the gradient of what
  // attention reads lies in front, behind it what each step takes. dx of queries is added to dx.
  const Spec of_rotated = {x.dtype, {x.shape.num_rows(), spec.query.shape.dim(-1)}};
  const std::size_t queries = padded(spec.query) + padded(x) + of_queries;
  const std::size_t keys = padded(spec.down) + padded(of_rotated) + padded(spec.latent) +
                           padded(spec.key_value) +
                           std::max(latent.scratch_bytes, key_value.scratch_bytes);
  const std::size_t attention =
      padded(spec.attended) + padded(spec.values) + std::max(core.scratch_bytes, out.scratch_bytes);
  footprint.scratch_bytes = padded(spec.qkv) + std::max({queries, keys, attention});
  return footprint;
}

ops::BlockPlaces LatentAttention::in_fused(Which which, std::int64_t first) const {
  const ops::HeadLayout& heads = options_.heads;
  return {static_cast<std::int64_t>(which) * heads.query_width() + first, heads.qkv_width(),
          heads.head_dim};
}

void LatentAttention::copy_heads(Run& run, std::int64_t width, const Tensor& from,
                                 ops::BlockPlaces from_places, const Tensor& to,
                                 ops::BlockPlaces to_places) const {
  if (width == 0) return;
  ops::copy_blocks(run, {from.shape().num_rows(), options_.heads.num_heads}, width, from,
                   from_places, to, to_places);
}

// A head's rotated elements stand in front, where ops::rope turns them; files have them behind.
void LatentAttention::make_queries(Run& run, const Pass& pass, const Specs& specs) {
  const LatentShape& shape = options_.shape;
  const std::int64_t H = options_.heads.num_heads;
  Tensor x = pass.x;
  if (has_query_latent()) {
    to_.query_down->forward(run, {.x = pass.x, .y = pass.kept[kQueryLatent]});
    x = pass.kept[kQueryNormed];
    ops::rms_norm_forward(run, options_.norm, pass.kept[kQueryLatent], to_.query_norm.value, x,
                          pass.kept[kQueryRstd]);
  }
  Run inner = run;
  const Tensor query = inner.take_scratch(specs.query);
  to_.query.forward(inner, {.x = x, .y = query});
  const std::int64_t width = shape.query_dim();
  copy_heads(inner, shape.rotary_dim, query, in_heads(H, width, shape.content_dim), pass.kept[kQkv],
             in_fused(Which::kQuery, 0));
  copy_heads(inner, shape.content_dim, query, in_heads(H, width, 0), pass.kept[kQkv],
             in_fused(Which::kQuery, shape.rotary_dim));
}

void LatentAttention::make_keys_and_values(Run& run, const Pass& pass, const Specs& specs) {
  const LatentShape& shape = options_.shape;
  const std::int64_t H = options_.heads.num_heads;
  const std::int64_t rows = pass.x.shape().num_rows();
  const std::int64_t down_width = shape.kv_rank + shape.rotary_dim;
  const Tensor &qkv = pass.kept[kQkv], &latent = pass.kept[kLatent], &normed = pass.kept[kNormed];
  Run inner = run;
  const Tensor down = inner.take_scratch(specs.down);
  to_.latent.forward(inner, {.x = pass.x, .y = down});
  ops::copy_blocks(inner, {1, rows}, shape.kv_rank, down, {.inner = down_width}, latent,
                   {.inner = shape.kv_rank});
  // All heads have the same rotated key.
  copy_heads(inner, shape.rotary_dim, down, {shape.kv_rank, down_width, 0}, qkv,
             in_fused(Which::kKey, 0));
  ops::rms_norm_forward(inner, options_.norm, latent, to_.latent_norm.value, normed,
                        pass.kept[kRstd]);
  const Tensor key_value = inner.take_scratch(specs.key_value);
  to_.key_value.forward(inner, {.x = normed, .y = key_value});
  const std::int64_t width = shape.content_dim + shape.value_dim;
  copy_heads(inner, shape.content_dim, key_value, in_heads(H, width, 0), qkv,
             in_fused(Which::kKey, shape.rotary_dim));
  copy_heads(inner, shape.value_dim, key_value, in_heads(H, width, shape.content_dim), qkv,
             in_fused(Which::kValue, 0));
}

void LatentAttention::rotate(Run& run, const Pass& pass, bool inverse, const Tensor& qkv) const {
  const Tensor positions = pass.batch == nullptr ? Tensor() : pass.batch->positions;
  ops::rope(run, options_.heads, options_.rope_table->value, positions, inverse, qkv,
            options_.shape.rotates_neighbours ? ops::RotaryPairs::kNeighbours
                                              : ops::RotaryPairs::kHalves);
}

void LatentAttention::attend(Run& run, const Pass& pass) const {
  const Tensor &qkv = pass.kept[kQkv], &attended = pass.kept[kOut];
  if (pass.cache == nullptr) {
    return core_->forward(run, setup(), pass.batch, qkv, attended, kept_by_core(pass));
  }
  const KvCache& cache = *pass.cache;
  ATOLL_CHECK(pass.batch != nullptr && pass.batch->positions.defined(),
              "a batch that continues a cache needs positions");
  const auto index = static_cast<std::size_t>(options_.index);
  const Tensor &keys = cache.keys[index], &values = cache.values[index];
  if (cache.is_paged()) {
    return ops::attention_paged(run, options_.heads, setup().scores(), /*window=*/0,
                                cache.sequences, cache.block_size, qkv, keys, values, attended);
  }
  ops::attention_cached(run, options_.heads, setup().scores(), {.positions = pass.batch->positions},
                        cache.length, qkv, keys, values, attended);
}

void LatentAttention::forward(Run& run, const Pass& pass) {
  const Specs spec = specs(pass.x.spec());
  const LatentShape& shape = options_.shape;
  if (shape.query_dim() != shape.value_dim) ops::fill_zero(run, pass.kept[kQkv]);
  make_queries(run, pass, spec);
  make_keys_and_values(run, pass, spec);
  rotate(run, pass, /*inverse=*/false, pass.kept[kQkv]);
  attend(run, pass);
  Run inner = run;
  const Tensor values = inner.take_scratch(spec.values);
  const std::int64_t H = options_.heads.num_heads, D = options_.heads.head_dim;
  copy_heads(inner, shape.value_dim, pass.kept[kOut], in_heads(H, D, 0), values,
             in_heads(H, shape.value_dim, 0));
  to_.out.forward(inner, {.x = values, .y = pass.y, .residual = pass.residual});
}

void LatentAttention::backward_attention(Run& run, const Pass& pass, const Specs& specs,
                                         const Tensor& dqkv) {
  const LatentShape& shape = options_.shape;
  const std::int64_t H = options_.heads.num_heads, D = options_.heads.head_dim;
  Run inner = run;
  const Tensor dattended = inner.take_scratch(specs.attended);
  const Tensor dvalues = inner.take_scratch(specs.values);
  to_.out.backward_input(inner, {.dx = dvalues, .dy = pass.dy});
  if (shape.value_dim != D) ops::fill_zero(inner, dattended);
  copy_heads(inner, shape.value_dim, dvalues, in_heads(H, shape.value_dim, 0), dattended,
             in_heads(H, D, 0));
  core_->backward(inner, setup(), pass.batch, pass.kept[kQkv], pass.kept[kOut], kept_by_core(pass),
                  dattended, dqkv);
  rotate(inner, pass, /*inverse=*/true, dqkv);
}

// (rows, R): the gradient of the key part that all heads share, pairs of halves at a time.
Tensor LatentAttention::sum_rotated_keys(Run& run, const Tensor& dqkv) const {
  const std::int64_t R = options_.shape.rotary_dim;
  const std::int64_t rows = dqkv.shape().num_rows();
  std::int64_t heads = options_.heads.num_heads;
  const ops::BlockPlaces from = in_fused(Which::kKey, 0);
  const Tensor parts = run.take_scratch({dqkv.dtype(), {heads * rows, R}});
  ops::copy_blocks(run, {heads, rows}, R, dqkv,
                   {.offset = from.offset, .outer = from.inner, .inner = from.outer}, parts,
                   {.outer = rows * R, .inner = R});
  while (heads > 1) {
    const std::int64_t half = heads / 2;
    const Tensor first = parts.rows(0, half * rows);
    ops::add(run, first, parts.rows((heads - half) * rows, heads * rows), first);
    heads -= half;
  }
  return parts.rows(0, rows);
}

void LatentAttention::backward_keys_and_values(Run& run, const Pass& pass, const Specs& specs,
                                               const Tensor& dqkv) {
  const LatentShape& shape = options_.shape;
  const std::int64_t H = options_.heads.num_heads;
  const std::int64_t rows = dqkv.shape().num_rows();
  const std::int64_t width = shape.content_dim + shape.value_dim;
  const std::int64_t down_width = shape.kv_rank + shape.rotary_dim;
  const Tensor &dkey_value = pass.owed[kDkeyValue], &ddown = pass.owed[kDdown];
  copy_heads(run, shape.content_dim, dqkv, in_fused(Which::kKey, shape.rotary_dim), dkey_value,
             in_heads(H, width, 0));
  copy_heads(run, shape.value_dim, dqkv, in_fused(Which::kValue, 0), dkey_value,
             in_heads(H, width, shape.content_dim));
  Run inner = run;
  const Tensor dlatent = inner.take_scratch(specs.latent);
  to_.key_value.backward_input(inner, {.dx = dlatent, .dy = dkey_value});
  ops::rms_norm_backward(inner, options_.norm, pass.kept[kLatent], to_.latent_norm.value,
                         pass.kept[kRstd], dlatent, {}, dlatent, pass.owed[kLatentSums]);
  ops::copy_blocks(inner, {1, rows}, shape.kv_rank, dlatent, {.inner = shape.kv_rank}, ddown,
                   {.inner = down_width});
  ops::copy_blocks(inner, {1, rows}, shape.rotary_dim, sum_rotated_keys(inner, dqkv),
                   {.inner = shape.rotary_dim}, ddown,
                   {.offset = shape.kv_rank, .inner = down_width});
  to_.latent.backward_input(inner, {.dx = pass.dx, .dy = ddown});
}

// Adds to dx.
void LatentAttention::backward_queries(Run& run, const Pass& pass, const Specs& specs,
                                       const Tensor& dqkv) {
  const LatentShape& shape = options_.shape;
  const std::int64_t H = options_.heads.num_heads;
  const std::int64_t width = shape.query_dim();
  const Tensor& dquery = pass.owed[kDquery];
  copy_heads(run, shape.rotary_dim, dqkv, in_fused(Which::kQuery, 0), dquery,
             in_heads(H, width, shape.content_dim));
  copy_heads(run, shape.content_dim, dqkv, in_fused(Which::kQuery, shape.rotary_dim), dquery,
             in_heads(H, width, 0));
  Run inner = run;
  const Tensor dx = inner.take_scratch(pass.dx.spec());
  if (has_query_latent()) {
    const Tensor& dlatent = pass.owed[kDqueryLatent];
    const Tensor dnormed = inner.take_scratch(specs.query_latent);
    to_.query.backward_input(inner, {.dx = dnormed, .dy = dquery});
    ops::rms_norm_backward(inner, options_.norm, pass.kept[kQueryLatent], to_.query_norm.value,
                           pass.kept[kQueryRstd], dnormed, {}, dlatent, pass.owed[kQuerySums]);
    to_.query_down->backward_input(inner, {.dx = dx, .dy = dlatent});
  } else {
    to_.query.backward_input(inner, {.dx = dx, .dy = dquery});
  }
  ops::add(inner, pass.dx, dx, pass.dx);
}

void LatentAttention::backward_input(Run& run, const Pass& pass) {
  const Specs spec = specs(pass.dx.spec());
  Run inner = run;
  const Tensor dqkv = inner.take_scratch(spec.qkv);
  backward_attention(inner, pass, spec, dqkv);
  backward_keys_and_values(inner, pass, spec, dqkv);
  backward_queries(inner, pass, spec, dqkv);
}

void LatentAttention::backward_weight(Run& run, const Pass& pass) {
  const Specs spec = specs(pass.x.spec());
  const LatentShape& shape = options_.shape;
  const std::int64_t rows = pass.x.shape().num_rows();
  if (has_query_latent()) {
    to_.query.backward_weight(run, {.x = pass.kept[kQueryNormed], .dy = pass.owed[kDquery]});
    to_.query_down->backward_weight(run, {.x = pass.x, .dy = pass.owed[kDqueryLatent]});
    if (!to_.query_norm.frozen) {
      ops::add_norm_sums(run, rows, pass.owed[kQuerySums], to_.query_norm.grad);
    }
  } else {
    to_.query.backward_weight(run, {.x = pass.x, .dy = pass.owed[kDquery]});
  }
  to_.key_value.backward_weight(run, {.x = pass.kept[kNormed], .dy = pass.owed[kDkeyValue]});
  to_.latent.backward_weight(run, {.x = pass.x, .dy = pass.owed[kDdown]});
  if (!to_.latent_norm.frozen) {
    ops::add_norm_sums(run, rows, pass.owed[kLatentSums], to_.latent_norm.grad);
  }
  Run inner = run;
  const Tensor values = inner.take_scratch(spec.values);
  const std::int64_t H = options_.heads.num_heads, D = options_.heads.head_dim;
  copy_heads(inner, shape.value_dim, pass.kept[kOut], in_heads(H, D, 0), values,
             in_heads(H, shape.value_dim, 0));
  to_.out.backward_weight(inner, {.x = values, .dy = pass.dy});
}

void LatentAttention::visit(ParamVisitor& visitor) {
  if (has_query_latent()) {
    to_.query_down->visit(visitor);
    visitor.param(to_.query_norm);
  }
  to_.query.visit(visitor);
  to_.latent.visit(visitor);
  visitor.param(to_.latent_norm);
  to_.key_value.visit(visitor);
  to_.out.visit(visitor);
}

}  // namespace atl::nn
