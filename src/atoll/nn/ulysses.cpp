#include "atoll/nn/ulysses.h"

#include <array>

#include "atoll/nn/waiting.h"
#include "atoll/ops/copy_blocks/copy_blocks.h"
#include "atoll/ops/elementwise/elementwise.h"

namespace atl::nn {

namespace {

// What is kept: queries, keys and values of all rows, their attended values, and log-sum-exps.
enum Kept { kQkv, kOut, kLse };

std::array<std::int64_t, 3> qkv_widths(const ops::HeadLayout& heads) {
  return {heads.query_width(), heads.kv_width(), heads.kv_width()};
}

Tensor flat(const Tensor& tensor) {
  return tensor.reshaped({tensor.num_elements()});
}

// Part i of `data` to rank i, all parts of one size; the seconds are counted.
void exchange(Axis& axis, const Tensor& data, const Tensor& result) {
  ATOLL_CHECK(axis.group != nullptr && axis.group->size() == axis.size, "not connected");
  const Waiting waiting(axis);
  const std::vector<std::int64_t> parts = axis.group->even_parts(data.num_elements());
  axis.group->all_to_all(flat(data), parts, flat(result), parts);
}

}  // namespace

ops::HeadLayout UlyssesAttention::part(const ops::HeadLayout& heads) const {
  ATOLL_CHECK(heads.num_heads % axis_->size == 0 && heads.num_kv_heads % axis_->size == 0,
              "{} heads and {} key-value heads over {} ranks", heads.num_heads, heads.num_kv_heads,
              axis_->size);
  return {heads.num_heads / axis_->size, heads.num_kv_heads / axis_->size, heads.head_dim};
}

AttentionCore::Setup UlyssesAttention::of_part(const Setup& setup) const {
  Setup mine = setup;
  mine.heads = part(setup.heads);
  const std::int64_t first = axis_->rank * mine.heads.num_heads;
  const std::int64_t end = first + mine.heads.num_heads;
  if (setup.sinks.defined()) mine.sinks = setup.sinks.rows(first, end);
  if (setup.dsinks.defined()) mine.dsinks = setup.dsinks.rows(first, end);
  return mine;
}

// Documents are those of whole sequences.
ops::AttentionMask UlyssesAttention::mask(const Setup& setup, const Batch* batch) const {
  return {.window = setup.window,
          .positions = batch == nullptr ? Tensor() : batch->sequence_positions};
}

// (B, T, W / c) for (B, T / c, W).
Spec UlyssesAttention::all_rows(const Spec& mine) const {
  const Shape& shape = mine.shape;
  return {mine.dtype, {shape.dim(0), shape.dim(1) * axis_->size, shape.dim(2) / axis_->size}};
}

AttentionCore::Footprint UlyssesAttention::plan(const Setup& setup, const Spec& qkv) const {
  const ops::HeadLayout heads = part(setup.heads);
  const Spec all = all_rows(qkv);
  const Spec attended = all.with_last(heads.query_width());
  const Spec lse = {compute_dtype(qkv.dtype),
                    {qkv.shape.dim(0), heads.num_heads, all.shape.dim(1)}};
  // In B: what is sent and what is received, the gradients of all rows' qkv and attended values.
  const std::size_t scratch = 3 * align_up(qkv.bytes()) + align_up(attended.bytes()) +
                              ops::attention_scratch_bytes(heads, all);
  return {{all, attended, lse}, scratch};
}

// Rank i gets its part of each group of heads; what comes from rank i are its rows.
void UlyssesAttention::to_heads(Run run, std::span<const std::int64_t> widths, const Tensor& rows,
                                const Tensor& heads) const {
  const std::int64_t batch = rows.dim(0), own = rows.dim(1), width = rows.dim(2);
  const std::int64_t c = axis_->size, block = batch * own * (width / c);
  const Tensor sent = run.take_scratch(rows.spec());
  for (std::int64_t i = 0; i < c; ++i) {
    std::int64_t group = 0;  // where it begins in a row
    for (const std::int64_t of_group : widths) {
      const std::int64_t mine = of_group / c;
      ops::copy_blocks(run, {batch, own}, mine, rows, {group + i * mine, own * width, width}, sent,
                       {i * block + group / c, own * (width / c), width / c});
      group += of_group;
    }
  }
  if (batch == 1) return exchange(*axis_, sent, heads);  // rows of ranks follow one another
  const Tensor received = run.take_scratch(rows.spec());
  exchange(*axis_, sent, received);
  const std::int64_t stretch = own * (width / c);
  ops::copy_blocks(run, {c, batch}, stretch, received, {0, block, stretch}, heads,
                   {0, stretch, c * stretch});
}

void UlyssesAttention::to_rows(Run run, std::span<const std::int64_t> widths, const Tensor& heads,
                               const Tensor& rows) const {
  const std::int64_t batch = rows.dim(0), own = rows.dim(1), width = rows.dim(2);
  const std::int64_t c = axis_->size, block = batch * own * (width / c);
  const std::int64_t stretch = own * (width / c);
  Tensor sent = heads;
  if (batch > 1) {
    sent = run.take_scratch(rows.spec());
    ops::copy_blocks(run, {c, batch}, stretch, heads, {0, stretch, c * stretch}, sent,
                     {0, block, stretch});
  }
  const Tensor received = run.take_scratch(rows.spec());
  exchange(*axis_, sent, received);
  for (std::int64_t i = 0; i < c; ++i) {
    std::int64_t group = 0;
    for (const std::int64_t of_group : widths) {
      const std::int64_t mine = of_group / c;
      ops::copy_blocks(run, {batch, own}, mine, received,
                       {i * block + group / c, own * (width / c), width / c}, rows,
                       {group + i * mine, own * width, width});
      group += of_group;
    }
  }
}

void UlyssesAttention::forward(Run& run, const Setup& setup, const Batch* batch, const Tensor& qkv,
                               const Tensor& out, std::span<const Tensor> kept) {
  const std::array<std::int64_t, 1> attended = {setup.heads.query_width()};
  to_heads(run, qkv_widths(setup.heads), qkv, kept[kQkv]);
  ops::attention_forward(run, part(setup.heads), setup.scores(), mask(setup, batch), kept[kQkv],
                         kept[kOut], kept[kLse]);
  of_part(setup).add_sinks(run, kept[kOut], kept[kLse]);
  to_rows(run, attended, kept[kOut], out);
}

void UlyssesAttention::backward(Run& run, const Setup& setup, const Batch* batch,
                                const Tensor& /*qkv*/, const Tensor& /*out*/,
                                std::span<const Tensor> kept, const Tensor& dout,
                                const Tensor& dqkv) {
  const std::array<std::int64_t, 1> attended = {setup.heads.query_width()};
  Run inner = run;
  const Tensor all_dout = inner.take_scratch(kept[kOut].spec());
  const Tensor all_dqkv = inner.take_scratch(kept[kQkv].spec());
  to_heads(inner, attended, dout, all_dout);
  ops::attention_backward(inner, part(setup.heads), setup.scores(), mask(setup, batch), kept[kQkv],
                          kept[kOut], kept[kLse], all_dout, all_dqkv);
  // Ranks' gradients are summed: each has those of its heads, of all rows.
  if (setup.dsinks.defined()) ops::fill_zero(inner, setup.dsinks);
  of_part(setup).backward_sinks(inner, kept[kOut], kept[kLse], all_dout);
  to_rows(inner, qkv_widths(setup.heads), all_dqkv, dqkv);
}

}  // namespace atl::nn
