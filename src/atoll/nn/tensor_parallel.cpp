#include "atoll/nn/tensor_parallel.h"

#include <algorithm>

#include "atoll/nn/waiting.h"
#include "atoll/ops/copy_blocks/copy_blocks.h"
#include "atoll/ops/cross_entropy/cross_entropy.h"
#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/ops/embedding/embedding.h"
#include "atoll/ops/int8/int8.h"
#include "atoll/ops/matmul/matmul.h"
#include "atoll/ops/softcap/softcap.h"

namespace atl::nn {

namespace {

comm::Group& group_of(const Axis& axis) {
  ATOLL_CHECK(
      axis.group != nullptr && axis.group->size() == axis.size && axis.group->rank() == axis.rank,
      "an axis of {} ranks is not connected", axis.size);
  return *axis.group;
}

// (B, T, C) for (B, T / t, C).
Spec gathered(const Spec& x, const Axis& axis) {
  ATOLL_CHECK(x.shape.rank() == 3, "{}", x.to_string());
  return {x.dtype, {x.shape.dim(0), x.shape.dim(1) * axis.size, x.shape.dim(2)}};
}

// (B, T / t, C) for (B, T, C).
Spec scattered(const Spec& x, const Axis& axis) {
  ATOLL_CHECK(x.shape.rank() == 3 && x.shape.dim(1) % axis.size == 0, "{} over {} ranks",
              x.to_string(), axis.size);
  return {x.dtype, {x.shape.dim(0), x.shape.dim(1) / axis.size, x.shape.dim(2)}};
}

Tensor flat(const Tensor& tensor) {
  return tensor.reshaped({tensor.num_elements()});
}

// This rank's rows of a tensor that has all of them.
Tensor rows_of(const Tensor& all, const Axis& axis) {
  const std::int64_t size = all.num_elements() / axis.size;
  return flat(all).rows(axis.rank * size, (axis.rank + 1) * size);
}

void scatter_sum(Axis& axis, const Tensor& all, const Tensor& mine) {
  comm::Group& group = group_of(axis);
  const Waiting waiting(axis);
  group.reduce_scatter(flat(all), group.even_parts(all.num_elements()), flat(mine));
}

}  // namespace

void gather_rows(Run& run, Axis& axis, const Tensor& mine, const Tensor& all) {
  ops::copy(run, flat(mine), rows_of(all, axis));
  if (axis.size == 1) return;
  comm::Group& group = group_of(axis);
  const Waiting waiting(axis);
  group.all_gather(flat(all), group.even_parts(all.num_elements()));
}

Footprint GatherRows::plan(Spec x) const {
  Footprint footprint;
  footprint.y = gathered(x, *axis_);
  // All rows are t times as much as this rank's: for B and W they are gathered again.
  footprint.need_x = kForInput;
  footprint.need_dy = kForInput;
  footprint.y_again = true;
  return footprint;
}

void GatherRows::forward(Run& run, const Pass& pass) {
  gather_rows(run, *axis_, pass.x, pass.y);
}

void GatherRows::backward_input(Run& /*run*/, const Pass& pass) {
  scatter_sum(*axis_, pass.dy, pass.dx);
}

Footprint ScatterSum::plan(Spec x) const {
  Footprint footprint;
  footprint.y = scattered(x, *axis_);
  footprint.need_dy = kForInput;
  return footprint;
}

void ScatterSum::forward(Run& /*run*/, const Pass& pass) {
  scatter_sum(*axis_, pass.x, pass.y);
}

void ScatterSum::backward_input(Run& run, const Pass& pass) {
  gather_rows(run, *axis_, pass.dy, pass.dx);
}

Footprint AddBias::plan(Spec x) const {
  Footprint footprint;
  footprint.y = x;
  footprint.need_dy = kForInput | (bias_.frozen ? 0U : kForWeight);
  footprint.scratch_bytes = ops::column_sum_scratch_bytes(x);
  return footprint;
}

void AddBias::forward(Run& run, const Pass& pass) {
  ops::add_bias(run, pass.x, bias_.value, pass.y);
}

void AddBias::backward_input(Run& run, const Pass& pass) {
  ops::copy(run, pass.dy, pass.dx);
}

void AddBias::backward_weight(Run& run, const Pass& pass) {
  if (!bias_.frozen) ops::column_sum(run, pass.dy, bias_.grad);
}

VocabularyEmbedding::VocabularyEmbedding(Axis* axis, ops::VocabularyPart part, Param table,
                                         Param positions)
    : axis_(axis), part_(part), table_(std::move(table)), positions_(std::move(positions)) {
  table_.is_embedding = positions_.is_embedding = true;
}

Footprint VocabularyEmbedding::plan(Spec x) const {
  ATOLL_CHECK(x.dtype == Dtype::kI32 && x.shape.rank() == 2, "{}", x.to_string());
  Footprint footprint;
  const Spec all = {table_.spec.dtype, {x.shape.dim(0), x.shape.dim(1), table_.spec.shape.dim(1)}};
  footprint.y = scattered(all, *axis_);
  if (!table_.frozen || (has_positions() && !positions_.frozen)) {
    footprint.need_x = kForWeight;
    footprint.need_dy = kForWeight;
  }
  footprint.scratch_bytes = align_up(all.bytes()) + 2 * align_up(x.bytes()) +
                            ops::embedding_backward_scratch_bytes(x.shape.num_elements());
  return footprint;
}

Tensor VocabularyEmbedding::take_positions(Run& run, const Pass& pass, const Tensor& y) const {
  const Tensor positions = run.take_scratch({Dtype::kI32, {y.dim(0), y.dim(1)}});
  ops::local_positions(run, pass.batch == nullptr ? Tensor() : pass.batch->positions, pass.x.dim(1),
                       axis_->rank * positions.num_elements(), positions);
  return positions;
}

void VocabularyEmbedding::forward(Run& run, const Pass& pass) {
  Run inner = run;
  const Tensor local = inner.take_scratch(pass.x.spec());
  const Tensor all = inner.take_scratch(gathered(pass.y.spec(), *axis_));
  const Tensor tokens = flat(pass.x);
  ops::local_tokens(inner, part_, tokens, flat(local));
  if (table_.as_int8)
    ops::embedding_int8(inner, local, table_.int8, all);
  else
    ops::embedding_forward(inner, local, table_.value, all);
  ops::clear_foreign_rows(inner, part_, tokens, all);
  scatter_sum(*axis_, all, pass.y);
  if (!has_positions()) return;
  const Tensor positions = take_positions(inner, pass, pass.y);
  ops::position_embedding_forward(inner, positions, positions_.value, pass.y);
}

void VocabularyEmbedding::backward_weight(Run& run, const Pass& pass) {
  Run inner = run;
  if (has_positions() && !positions_.frozen) {
    Run room = inner;
    const Tensor positions = take_positions(room, pass, pass.dy);
    ops::position_embedding_backward(room, positions, pass.dy, positions_.grad);
  }
  if (table_.frozen) return;
  const Tensor all = inner.take_scratch(gathered(pass.dy.spec(), *axis_));
  gather_rows(inner, *axis_, pass.dy, all);
  ops::embedding_part_backward(inner, part_, flat(pass.x), all, table_.grad);
}

void VocabularyEmbedding::visit(ParamVisitor& visitor) {
  visitor.param(table_);
  if (has_positions()) visitor.param(positions_);
}

namespace {

// Rows whose logits are held at once, for the largest part of a vocabulary: the same on all ranks.
// On a CPU as large as 128 MiB of f32 logits allow, up to 512 rows, as in
// ops::linear_cross_entropy.
std::int64_t chunk_rows(DeviceKind device, Dtype dtype, std::int64_t rows,
                        std::int64_t vocabulary) {
  if (device == DeviceKind::kCuda) {
    // In f32, and their gradients in bf16 beside weights in bf16.
    const std::int64_t each = dtype == Dtype::kBf16 ? 6 : 4;
    return ops::gpu_logits_rows(each * vocabulary, rows);
  }
  constexpr std::int64_t kMaxLogits = std::int64_t{32} << 20;
  return std::min(rows, std::clamp<std::int64_t>(kMaxLogits / vocabulary, 64, 512));
}

struct HeadRoom {
  Spec x, logits, statistics;
};

HeadRoom head_room(DeviceKind device, const Spec& all, const ops::VocabularyPart& part,
                   int num_ranks) {
  const std::int64_t rows = all.shape.num_rows();
  const std::int64_t chunk =
      chunk_rows(device, all.dtype, rows, (part.total + num_ranks - 1) / num_ranks);
  return {{all.dtype, {rows, all.shape.dim(-1)}},
          {compute_dtype(all.dtype), {chunk, part.size}},
          {Dtype::kF64, {num_ranks, chunk, ops::kNumSoftmaxStatistics}}};
}

}  // namespace

struct VocabularyCrossEntropy::Chunk {
  Tensor x, targets, logits, statistics, loss;
  Tensor dx;      // undefined outside training
  Tensor capped;  // room for a copy of the logits, of a head with a cap in training
};

VocabularyCrossEntropy::VocabularyCrossEntropy(Axis* axis, ops::VocabularyPart part, double softcap,
                                               Param weight, DeviceKind device)
    : axis_(axis),
      part_(part),
      softcap_(softcap),
      device_(device),
      own_(std::move(weight)),
      weight_(&own_) {
  own_.is_embedding = true;
}

Footprint VocabularyCrossEntropy::plan(Spec x) const {
  const Spec all = gathered(x, *axis_);
  const HeadRoom room = head_room(device_, all, part_, axis_->size);
  Footprint footprint;
  footprint.y = {compute_dtype(x.dtype), {all.shape.dim(0), all.shape.dim(1)}};
  footprint.kept = {x};  // dx
  footprint.gradients_in_forward = true;
  const Spec chunk = {room.x.dtype, {room.logits.shape.dim(0), room.x.shape.dim(1)}};
  const std::size_t products =
      std::max({ops::matmul_scratch_bytes(ops::Transpose::kNT, chunk, weight_->spec, device_),
                ops::matmul_scratch_bytes(ops::Transpose::kNN, room.logits, weight_->spec, device_),
                ops::matmul_scratch_bytes(ops::Transpose::kTN, room.logits, chunk, device_)});
  const std::size_t logits = (softcap_ > 0 ? 2 : 1) * align_up(room.logits.bytes());
  footprint.scratch_bytes =
      2 * align_up(room.x.bytes()) + logits + align_up(room.statistics.bytes()) + products;
  return footprint;
}

void VocabularyCrossEntropy::run_chunk(Run& run, const Chunk& chunk) const {
  const bool training = chunk.dx.defined();
  ops::matmul(run, ops::Transpose::kNT, chunk.x, weight_->value, chunk.logits);
  if (softcap_ > 0) ops::softcap_forward(run, softcap_, chunk.logits, chunk.logits);
  if (chunk.capped.defined()) ops::copy(run, chunk.logits, chunk.capped);
  const Tensor mine = flat(chunk.statistics.rows(axis_->rank, axis_->rank + 1));
  ops::softmax_part(run, part_, chunk.logits, chunk.targets, mine);
  if (axis_->size > 1) {
    comm::Group& group = group_of(*axis_);
    const Waiting waiting(*axis_);
    group.all_gather(flat(chunk.statistics), group.even_parts(chunk.statistics.num_elements()));
  }
  ops::cross_entropy_part(run, part_, axis_->rank, /*factor=*/1, chunk.statistics, chunk.targets,
                          chunk.logits, chunk.loss, training);
  if (!training) return;
  if (softcap_ > 0) {
    ops::softcap_backward(run, softcap_, chunk.capped, chunk.logits, chunk.logits);
  }
  ops::matmul(run, ops::Transpose::kNN, chunk.logits, weight_->value, chunk.dx);
  if (weight_->frozen) return;
  ops::matmul(run, ops::Transpose::kTN, chunk.logits, chunk.x, weight_->grad, {},
              /*accumulate=*/true);
}

void VocabularyCrossEntropy::forward_scaled(Run& run, const Pass& pass,
                                            std::span<const double> scales) {
  const Spec all = gathered(pass.x.spec(), *axis_);
  const HeadRoom room = head_room(device_, all, part_, axis_->size);
  Run inner = run;
  const Tensor x = inner.take_scratch(room.x);
  const Tensor dx = inner.take_scratch(room.x);
  const Tensor logits = inner.take_scratch(room.logits);
  const Tensor statistics = inner.take_scratch(room.statistics);
  const bool keeps = softcap_ > 0 && run.training;
  const Tensor capped = keeps ? inner.take_scratch(room.logits) : Tensor();
  gather_rows(inner, *axis_, pass.x, x);
  const std::int64_t rows = x.dim(0);
  const Tensor targets = flat(pass.batch->targets);
  const Tensor loss = flat(pass.y);
  const auto passes = static_cast<std::int64_t>(std::max<std::size_t>(scales.size(), 1));
  const std::int64_t step = logits.dim(0);
  for (std::int64_t begin = 0; begin < rows;) {
    const std::int64_t sequence = begin * passes / rows;
    const std::int64_t end = std::min(begin + step, (sequence + 1) * (rows / passes));
    Run scaled = inner;
    if (!scales.empty()) scaled.loss_scale *= scales[static_cast<std::size_t>(sequence)];
    const Shape shape = {axis_->size, end - begin, ops::kNumSoftmaxStatistics};
    run_chunk(scaled, {.x = x.rows(begin, end),
                       .targets = targets.rows(begin, end),
                       .logits = logits.rows(0, end - begin),
                       .statistics = flat(statistics).rows(0, shape.num_elements()).reshaped(shape),
                       .loss = loss.rows(begin, end),
                       .dx = run.training ? dx.rows(begin, end) : Tensor(),
                       .capped = keeps ? capped.rows(0, end - begin) : Tensor()});
    begin = end;
  }
  if (!run.training) return;
  if (axis_->size == 1) return ops::copy(run, dx, pass.kept[0]);
  scatter_sum(*axis_, dx, pass.kept[0]);
}

void VocabularyCrossEntropy::logits(Run& run, Tensor x, Tensor out) const {
  const std::int64_t rows = x.dim(0);
  Run inner = run;
  const Tensor gathered = inner.take_scratch({out.dtype(), {rows * part_.total}});
  std::vector<std::int64_t> parts;
  for (int r = 0; r <= axis_->size; ++r) parts.push_back(rows * (part_.total * r / axis_->size));
  const auto me = static_cast<std::size_t>(axis_->rank);
  const Tensor mine = gathered.rows(parts[me], parts[me + 1]).reshaped({rows, part_.size});
  if (weight_->as_int8)
    ops::matmul_int8(inner, x, weight_->int8, mine);
  else
    ops::matmul(inner, ops::Transpose::kNT, x, weight_->value, mine);
  if (softcap_ > 0) ops::softcap_forward(inner, softcap_, mine, mine);
  if (axis_->size > 1) {
    comm::Group& group = group_of(*axis_);
    const Waiting waiting(*axis_);
    group.all_gather(gathered, parts);
  }
  for (std::size_t r = 0; r + 1 < parts.size(); ++r) {
    const std::int64_t width = (parts[r + 1] - parts[r]) / rows;
    ops::copy_blocks(inner, {1, rows}, width, gathered, {.offset = parts[r], .inner = width},
                     flat(out), {.offset = parts[r] / rows, .inner = part_.total});
  }
}

std::size_t VocabularyCrossEntropy::logits_scratch_bytes(const Spec& x) const {
  const std::int64_t rows = x.shape.dim(0);
  const std::size_t product =
      weight_->as_int8
          ? ops::matmul_int8_scratch_bytes(x, weight_->spec.shape)
          : ops::matmul_scratch_bytes(
                ops::Transpose::kNT, x,
                {weight_->as_bf16 ? Dtype::kBf16 : weight_->spec.dtype, weight_->spec.shape},
                device_);
  return align_up(Spec{Dtype::kF32, {rows * part_.total}}.bytes()) + product;
}

void VocabularyCrossEntropy::backward_input(Run& run, const Pass& pass) {
  ops::copy(run, pass.kept[0], pass.dx);
}

}  // namespace atl::nn
