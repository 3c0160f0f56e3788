#include <algorithm>

#include "atoll/ops/dora/dora.h"
#include "atoll/ops/dora/ref.h"
#include "atoll/ops/serve.h"

namespace atl::ops {

namespace {

// Rows that a thread takes at a time: a row is a sum of a few thousand products.
constexpr std::int64_t kGrain = 16;

struct GainArgs {
  Tensor w, change, magnitude;
  std::span<const DiagonalBlock> blocks;
  bool resets;
  Tensor gain;
};

struct ScaleArgs {
  Tensor x, gain, y;
};

struct BackwardArgs {
  Tensor dy, u, gain;
  std::span<const DiagonalBlock> blocks;
  Tensor dmagnitude;
};

// Calls fn(block, the rows of all blocks before it).
template <typename Fn>
void each_block(std::span<const DiagonalBlock> blocks, Fn&& fn) {
  std::int64_t before = 0;
  for (const DiagonalBlock& block : blocks) {
    fn(block, before);
    before += block.rows;
  }
}

Declined ref_gain(Run& run, const GainArgs& a) {
  return serve_any_storage(run, a.w.dtype(), [&]<typename T>(T) {
    const std::int64_t n = a.w.dim(0);
    auto* gain = a.gain.data<Compute<T>>();
    if (a.resets) {
      std::fill_n(gain, n, Compute<T>{1});
      std::fill_n(gain + n, n, Compute<T>{0});
    }
    each_block(a.blocks, [&](const DiagonalBlock& block, std::int64_t before) {
      run.threads().run_chunked(block.rows, kGrain, [&](std::int64_t first, std::int64_t last) {
        ref::dora_gain(a.w.data<T>(), a.change.data<T>(), a.magnitude.data<T>() + before,
                       block.row_begin, first, last, n, a.w.dim(1), gain);
      });
    });
  });
}

Declined ref_scale(Run& run, const ScaleArgs& a) {
  return serve_any_storage(run, a.x.dtype(), [&]<typename T>(T) {
    run.threads().run_chunked(a.x.shape().num_rows(), kGrain,
                              [&](std::int64_t first, std::int64_t last) {
                                ref::dora_scale(a.x.data<T>(), a.gain.data<Compute<T>>(), first,
                                                last, a.x.dim(-1), a.y.data<T>());
                              });
  });
}

Declined ref_backward(Run& run, const BackwardArgs& a) {
  return serve_any_storage(run, a.dy.dtype(), [&]<typename T>(T) {
    each_block(a.blocks, [&](const DiagonalBlock& block, std::int64_t before) {
      run.threads().run_chunked(block.rows, kGrain, [&](std::int64_t first, std::int64_t last) {
        ref::dora_backward(a.dy.data<T>(), a.u.data<T>(), a.gain.data<Compute<T>>(),
                           block.row_begin, first, last, a.dy.dim(-1), a.dy.shape().num_rows(),
                           a.dmagnitude.data<Compute<T>>() + before);
      });
    });
  });
}

// No kernel for GPUs yet: there dispatch() says so.
constexpr Implementation<GainArgs> kGain[] = {{"ref", ref_gain}};
constexpr Implementation<ScaleArgs> kScale[] = {{"ref", ref_scale}};
constexpr Implementation<BackwardArgs> kBackward[] = {{"ref", ref_backward}};

std::int64_t check_blocks(std::span<const DiagonalBlock> blocks, std::int64_t n) {
  std::int64_t rows = 0;
  for (const DiagonalBlock& block : blocks) {
    ATOLL_CHECK(block.row_begin >= 0 && block.rows >= 0 && block.row_begin + block.rows <= n,
                "rows {} + {} of {}", block.row_begin, block.rows, n);
    rows += block.rows;
  }
  return rows;
}

}  // namespace

void dora_gain(Run& run, Tensor w, Tensor change, Tensor magnitude,
               std::span<const DiagonalBlock> blocks, bool resets, Tensor gain) {
  const std::int64_t n = w.dim(0);
  check_spec("dora_gain", w.spec(), {change});
  check_spec("dora_gain", {w.dtype(), {check_blocks(blocks, n)}}, {magnitude});
  check_spec("dora_gain", {compute_dtype(w.dtype()), {2, n}}, {gain});
  dispatch<GainArgs>("dora_gain", kGain, run, {w, change, magnitude, blocks, resets, gain});
}

void dora_scale(Run& run, Tensor x, Tensor gain, Tensor y) {
  check_spec("dora_scale", x.spec(), {y});
  check_spec("dora_scale", {compute_dtype(x.dtype()), {2, x.dim(-1)}}, {gain});
  dispatch<ScaleArgs>("dora_scale", kScale, run, {x, gain, y});
}

void dora_backward(Run& run, Tensor dy, Tensor u, Tensor gain,
                   std::span<const DiagonalBlock> blocks, Tensor dmagnitude) {
  const Dtype dtype = compute_dtype(dy.dtype());
  check_spec("dora_backward", dy.spec(), {u});
  check_spec("dora_backward", {dtype, {2, dy.dim(-1)}}, {gain});
  check_spec("dora_backward", {dtype, {check_blocks(blocks, dy.dim(-1))}}, {dmagnitude});
  dispatch<BackwardArgs>("dora_backward", kBackward, run, {dy, u, gain, blocks, dmagnitude});
}

}  // namespace atl::ops
