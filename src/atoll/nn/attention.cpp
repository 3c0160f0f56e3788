#include "atoll/nn/attention.h"

#include <algorithm>

#include "atoll/nn/kv_cache.h"
#include "atoll/ops/attention.h"

namespace atl::nn {

namespace {

enum Kept { kQkv, kOut, kLse };
enum Owed { kDqkv };

}  // namespace

SelfAttention::SelfAttention(Options options, Linear qkv, Linear out)
    : options_(options), qkv_(std::move(qkv)), out_(std::move(out)) {}

Footprint SelfAttention::plan(Spec x) const {
  ATOLL_CHECK(x.shape.rank() == 3, "{}", x.to_string());
  const Footprint qkv = qkv_.plan(x);
  const Spec attended = x.with_last(options_.heads.query_width());
  const Footprint out = out_.plan(attended);
  const Spec lse = {x.dtype, {x.shape.dim(0), options_.heads.num_heads, x.shape.dim(1)}};

  Footprint footprint;
  footprint.y = out.y;
  footprint.need_x = kForWeight;
  footprint.need_dy = kForInput | kForWeight;
  footprint.kept = {qkv.y, attended, lse};
  footprint.owed = {qkv.y};
  footprint.scratch_bytes =
      align_up(attended.bytes()) +  // the gradient of the attended values, in B
      std::max({qkv.scratch_bytes, out.scratch_bytes,
                ops::attention_scratch_bytes(options_.heads, qkv.y)});
  return footprint;
}

void SelfAttention::rotate(Run& run, std::int64_t first_position, bool inverse, Tensor qkv) const {
  if (options_.rope_table == nullptr) return;
  ops::rope(run, options_.heads, options_.rope_table->value, first_position, {}, inverse, qkv);
}

void SelfAttention::forward(Run& run, const Pass& pass) {
  const Tensor qkv = pass.kept[kQkv];
  const Tensor attended = pass.kept[kOut];
  qkv_.forward(run, {.x = pass.x, .y = qkv});
  if (pass.cache != nullptr) {
    const std::int64_t past = pass.cache->length;
    const auto index = static_cast<std::size_t>(options_.index);
    rotate(run, past, /*inverse=*/false, qkv);
    ops::attention_cached(run, options_.heads, options_.scale, 0, past, qkv,
                          pass.cache->keys[index], pass.cache->values[index], attended);
  } else {
    rotate(run, 0, /*inverse=*/false, qkv);
    ops::attention_forward(run, options_.heads, options_.scale, {}, qkv, attended, pass.kept[kLse]);
  }
  out_.forward(run, {.x = attended, .y = pass.y});
}

void SelfAttention::backward_input(Run& run, const Pass& pass) {
  const Tensor attended = pass.kept[kOut];
  const Tensor dqkv = pass.owed[kDqkv];
  Run inner = run;
  const Tensor dattended = inner.take_scratch(attended.spec());
  out_.backward_input(inner, {.dx = dattended, .dy = pass.dy});
  ops::attention_backward(inner, options_.heads, options_.scale, {}, pass.kept[kQkv], attended,
                          pass.kept[kLse], dattended, dqkv);
  rotate(inner, 0, /*inverse=*/true, dqkv);
  qkv_.backward_input(inner, {.dx = pass.dx, .dy = dqkv});
}

void SelfAttention::backward_weight(Run& run, const Pass& pass) {
  qkv_.backward_weight(run, {.x = pass.x, .dy = pass.owed[kDqkv]});
  out_.backward_weight(run, {.x = pass.kept[kOut], .dy = pass.dy});
}

void SelfAttention::visit(ParamVisitor& visitor) {
  qkv_.visit(visitor);
  out_.visit(visitor);
}

}  // namespace atl::nn
