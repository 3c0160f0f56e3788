#include "atoll/nn/ring_attention.h"

#include <array>
#include <chrono>
#include <utility>

#include "atoll/comm/channel/work.h"
#include "atoll/ops/copy_blocks/copy_blocks.h"
#include "atoll/ops/elementwise/elementwise.h"

namespace atl::nn {

namespace {

// Rows of keys and values of (B, R, qkv_width).
Spec kv_spec(const ops::HeadLayout& heads, const Spec& qkv) {
  return qkv.with_last(2 * heads.kv_width());
}

Spec in_compute_dtype(const Spec& spec) {
  return {compute_dtype(spec.dtype), spec.shape};
}

// From the keys and values of rows of qkv to rows of their own, and back.
void copy_kv(Run& run, const ops::HeadLayout& heads, const Tensor& qkv, const Tensor& kv,
             bool into_kv) {
  const std::int64_t width = heads.qkv_width(), part = 2 * heads.kv_width();
  const ops::BlockPlaces in_qkv = {heads.query_width(), qkv.dim(1) * width, width};
  const ops::BlockPlaces in_kv = {0, qkv.dim(1) * part, part};
  if (into_kv) {
    ops::copy_blocks(run, {qkv.dim(0), qkv.dim(1)}, part, qkv, in_qkv, kv, in_kv);
  } else {
    ops::copy_blocks(run, {qkv.dim(0), qkv.dim(1)}, part, kv, in_kv, qkv, in_qkv);
  }
}

// What moves to the next rank of the ring, and from the one before it, beside the caller's work.
class Shift {
 public:
  explicit Shift(Axis& axis) : axis_(axis) {
    ATOLL_CHECK(axis.group != nullptr && axis.group->size() == axis.size, "not connected");
  }

  void add(const Tensor& send, const Tensor& receive) {
    sends_[count_] = {(axis_.rank + 1) % axis_.size, send};
    receives_[count_++] = {(axis_.rank + axis_.size - 1) % axis_.size, receive};
  }
  void start() {
    if (count_ == 0) return;
    work_ = axis_.group->start_exchange({sends_.data(), count_}, {receives_.data(), count_});
  }
  void wait() {
    const auto start = std::chrono::steady_clock::now();
    work_.wait();
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
    axis_.waited_seconds += waited.count();
  }

 private:
  Axis& axis_;
  std::array<comm::Piece, 2> sends_, receives_;
  std::size_t count_ = 0;
  comm::Work work_;
};

ops::AttentionMask mask_of(const AttentionCore::Setup& setup, const Batch* batch) {
  return {.window = setup.window, .positions = batch == nullptr ? Tensor() : batch->positions};
}

}  // namespace

std::vector<ops::AttentionBlock> RingAttention::blocks(int num_ranks, int rank, int owner,
                                                       std::int64_t length, std::int64_t window) {
  const auto queries = SequencePart{SequenceOrder::kZigzag, num_ranks, rank}.stretches(length);
  const auto keys = SequencePart{SequenceOrder::kZigzag, num_ranks, owner}.stretches(length);
  std::vector<ops::AttentionBlock> result;
  for (std::size_t q = 0; q < queries.size(); ++q) {
    for (std::size_t back = keys.size(); back-- > 0;) {
      const std::int64_t count = keys[back].count;
      const ops::AttentionBlock block = {
          static_cast<std::int64_t>(q) * count,    queries[q].first, count,
          static_cast<std::int64_t>(back) * count, keys[back].first, count};
      if (block.first_key > block.first_query) continue;
      const std::int64_t between = block.first_query - (block.first_key + count - 1);
      if (window > 0 && between >= window) continue;
      result.push_back(block);
    }
  }
  return result;
}

std::vector<ops::AttentionBlock> RingAttention::blocks_with(int owner, const Setup& setup,
                                                            const Tensor& qkv) const {
  return blocks(axis_->size, axis_->rank, owner, qkv.dim(1) * axis_->size, setup.window);
}

AttentionCore::Footprint RingAttention::plan(const Setup& setup, const Spec& qkv) const {
  const Shape& shape = qkv.shape;
  const Spec lse = {compute_dtype(qkv.dtype), {shape.dim(0), setup.heads.num_heads, shape.dim(1)}};
  const Spec kv = kv_spec(setup.heads, qkv);
  const bool is_narrow = compute_dtype(qkv.dtype) != qkv.dtype;
  const Spec attended = in_compute_dtype(qkv.with_last(setup.heads.query_width()));
  // Forward: keys and values at hand and those that arrive; sums of what is stored narrower.
  const std::size_t forward =
      2 * align_up(kv.bytes()) + (is_narrow ? align_up(attended.bytes()) : 0);
  // Backward: these, and gradients at hand, on their way out and on their way in.
  const std::size_t backward =
      2 * align_up(kv.bytes()) + 3 * align_up(in_compute_dtype(kv).bytes()) +
      (is_narrow ? align_up(in_compute_dtype(qkv).bytes()) : 0) +
      ops::attention_block_scratch_bytes(setup.heads, shape.dim(0), shape.dim(1) / 2);
  return {{lse}, std::max(forward, backward)};
}

void RingAttention::forward(Run& run, const Setup& setup, const Batch* batch, const Tensor& qkv,
                            const Tensor& out, std::span<const Tensor> kept) {
  Run inner = run;
  Tensor kv = inner.take_scratch(kv_spec(setup.heads, qkv.spec()));
  Tensor arriving = inner.take_scratch(kv.spec());
  Tensor sums = out;
  if (compute_dtype(out.dtype()) != out.dtype()) {
    sums = inner.take_scratch(in_compute_dtype(out.spec()));
  }
  copy_kv(inner, setup.heads, qkv, kv, /*into_kv=*/true);
  for (int step = 0; step < axis_->size; ++step) {
    Shift shift(*axis_);
    if (step + 1 < axis_->size) shift.add(kv, arriving);
    shift.start();
    const int owner = (axis_->rank + axis_->size - step) % axis_->size;
    std::int64_t begun = -1;  // the last row of queries that have results
    for (const ops::AttentionBlock& block : blocks_with(owner, setup, qkv)) {
      const bool is_first = step == 0 && block.query_row > begun;
      begun = block.query_row;
      ops::attention_block_forward(inner, setup.heads, setup.scores(), mask_of(setup, batch), block,
                                   is_first, qkv, kv, sums, kept[0]);
    }
    shift.wait();
    std::swap(kv, arriving);
  }
  if (sums.dtype() != out.dtype()) ops::convert(inner, sums, out);
  setup.add_sinks(inner, out, kept[0]);
}

// The gradient of a rank's keys and values goes the way that they went, one step behind them: the
// rank after the owner begins it, each adds its own, and the owner, who has kept its own part, gets
// it from the rank before.
void RingAttention::backward(Run& run, const Setup& setup, const Batch* batch, const Tensor& qkv,
                             const Tensor& out, std::span<const Tensor> kept, const Tensor& dout,
                             const Tensor& dqkv) {
  Run inner = run;
  const int num_ranks = axis_->size;
  Tensor kv = inner.take_scratch(kv_spec(setup.heads, qkv.spec()));
  Tensor arriving = inner.take_scratch(kv.spec());
  const Spec gradient = in_compute_dtype(kv.spec());
  Tensor here = inner.take_scratch(gradient);
  Tensor leaving = inner.take_scratch(gradient), joining = inner.take_scratch(gradient);
  Tensor sums = dqkv;
  if (compute_dtype(dqkv.dtype()) != dqkv.dtype()) {
    sums = inner.take_scratch(in_compute_dtype(dqkv.spec()));
  }
  ops::fill_zero(inner, sums);
  copy_kv(inner, setup.heads, qkv, kv, /*into_kv=*/true);
  for (int step = 0; step < num_ranks; ++step) {
    Shift shift(*axis_);
    if (step + 1 < num_ranks) shift.add(kv, arriving);
    if (step >= 2) shift.add(leaving, joining);
    shift.start();
    ops::fill_zero(inner, here);
    const int owner = (axis_->rank + num_ranks - step) % num_ranks;
    for (const ops::AttentionBlock& block : blocks_with(owner, setup, qkv)) {
      ops::attention_block_backward(inner, setup.heads, setup.scores(), mask_of(setup, batch),
                                    block, qkv, kv, out, kept[0], dout, sums, here);
    }
    shift.wait();
    if (step == 0) copy_kv(inner, setup.heads, sums, here, /*into_kv=*/false);
    if (step >= 2) ops::add(inner, here, joining, here);
    std::swap(kv, arriving);
    std::swap(here, leaving);
  }
  Shift home(*axis_);
  home.add(leaving, joining);
  home.start();
  home.wait();
  copy_kv(inner, setup.heads, sums, here, /*into_kv=*/true);
  ops::add(inner, here, joining, here);
  copy_kv(inner, setup.heads, sums, here, /*into_kv=*/false);
  if (sums.dtype() != dqkv.dtype()) ops::convert(inner, sums, dqkv);
  setup.backward_sinks(inner, out, kept[0], dout);
}

}  // namespace atl::nn
