#include "atoll/nn/query_key_norm.h"

#include "atoll/ops/copy_blocks/copy_blocks.h"
#include "atoll/ops/elementwise/elementwise.h"

namespace atl::nn {

namespace {

// What is kept: the projection's output, then the statistics.
enum Kept { kProjected, kRstd };

Spec rows_of(const Spec& qkv, std::int64_t width) {
  return {qkv.dtype, {qkv.shape.num_rows(), width}};
}

}  // namespace

QueryKeyNorm::QueryKeyNorm(const ops::HeadLayout& heads, const ops::RmsScale& scale, Param query,
                           Param key)
    : heads_(heads), scale_(scale), query_(std::move(query)), key_(std::move(key)) {
  ATOLL_CHECK(query_.name.empty() == key_.name.empty(), "{} alone", query_.name + key_.name);
  if (!exists() || !is_of_rows()) return;
  ATOLL_CHECK(
      query_.spec.shape.dim(0) == heads.query_width() && key_.spec.shape.dim(0) == heads.kv_width(),
      "{} of {}", query_.name, query_.spec.to_string());
}

QueryKeyNorm::Part QueryKeyNorm::part(std::size_t which) const {
  if (which == 0) return {&query_, 0, heads_.query_width()};
  return {&key_, heads_.query_width(), heads_.kv_width()};
}

std::size_t QueryKeyNorm::num_kept() const {
  if (!exists()) return 0;
  return is_of_rows() ? 3 : 2;
}

std::size_t QueryKeyNorm::plan(const Spec& qkv, Footprint& footprint) const {
  if (!exists()) return 0;
  const Dtype statistics = compute_dtype(qkv.dtype);
  footprint.kept.push_back(qkv);
  if (!is_of_rows()) {
    footprint.kept.push_back(
        {statistics, {qkv.shape.dim(0), qkv.shape.dim(1), heads_.num_heads + heads_.num_kv_heads}});
    footprint.owed.push_back({statistics, {2, heads_.head_dim}});
    return ops::qk_norm_scratch_bytes(heads_, qkv);
  }
  std::size_t most = 0;
  for (const std::size_t which : {0U, 1U}) {
    const Spec rows = rows_of(qkv, part(which).width);
    footprint.kept.push_back({statistics, {qkv.shape.num_rows()}});
    footprint.owed.push_back(ops::norm_sums_spec(rows, 1));
    most = std::max(most, 2 * align_up(rows.bytes()));
  }
  return most;
}

void QueryKeyNorm::take(Run& run, const Part& part, const Tensor& fused, const Tensor& rows) const {
  ops::copy_blocks(run, {1, rows.dim(0)}, part.width, fused,
                   {.offset = part.first, .inner = heads_.qkv_width()}, rows,
                   {.inner = part.width});
}

void QueryKeyNorm::put(Run& run, const Part& part, const Tensor& rows, const Tensor& fused) const {
  ops::copy_blocks(run, {1, rows.dim(0)}, part.width, rows, {.inner = part.width}, fused,
                   {.offset = part.first, .inner = heads_.qkv_width()});
}

void QueryKeyNorm::forward(Run& run, std::span<const Tensor> kept, const Tensor& qkv) const {
  const Tensor& projected = kept[kProjected];
  if (!is_of_rows()) {
    return ops::qk_norm_forward(run, heads_, scale_, projected, query_.value, key_.value, qkv,
                                kept[kRstd]);
  }
  ops::copy(run, projected, qkv);
  for (const std::size_t which : {0U, 1U}) {
    const Part here = part(which);
    Run inner = run;
    const Tensor x = inner.take_scratch(rows_of(qkv.spec(), here.width));
    const Tensor y = inner.take_scratch(x.spec());
    take(inner, here, projected, x);
    ops::rms_norm_forward(inner, scale_, x, here.weight->value, y, kept[kRstd + which]);
    put(inner, here, y, qkv);
  }
}

void QueryKeyNorm::backward_input(Run& run, std::span<const Tensor> kept, const Tensor& dqkv,
                                  std::span<const Tensor> owed) const {
  const Tensor& projected = kept[kProjected];
  if (!is_of_rows()) {
    return ops::qk_norm_backward(run, heads_, scale_, projected, query_.value, key_.value,
                                 kept[kRstd], dqkv, dqkv, owed[0]);
  }
  for (const std::size_t which : {0U, 1U}) {
    const Part here = part(which);
    Run inner = run;
    const Tensor x = inner.take_scratch(rows_of(dqkv.spec(), here.width));
    const Tensor dy = inner.take_scratch(x.spec());
    take(inner, here, projected, x);
    take(inner, here, dqkv, dy);
    ops::rms_norm_backward(inner, scale_, x, here.weight->value, kept[kRstd + which], dy, {}, dy,
                           owed[which]);
    put(inner, here, dy, dqkv);
  }
}

void QueryKeyNorm::backward_weight(Run& run, std::int64_t rows, std::span<const Tensor> owed) {
  if (!is_of_rows()) {
    add_head_gradient(run, owed[0], 0, query_);
    add_head_gradient(run, owed[0], 1, key_);
    return;
  }
  if (!query_.frozen) ops::add_norm_sums(run, rows, owed[0], query_.grad);
  if (!key_.frozen) ops::add_norm_sums(run, rows, owed[1], key_.grad);
}

void QueryKeyNorm::add_head_gradient(Run& run, const Tensor& dweights, std::int64_t row,
                                     Param& norm) const {
  if (norm.frozen) return;
  const Tensor gradient = dweights.rows(row, row + 1).reshaped({heads_.head_dim});
  ops::add(run, norm.grad, gradient, norm.grad);
}

void QueryKeyNorm::visit(ParamVisitor& visitor) {
  if (!exists()) return;
  visitor.param(query_);
  visitor.param(key_);
}

}  // namespace atl::nn
