#include "atoll/ops/block_diagonal/block_diagonal.h"

#include "atoll/ops/block_diagonal/cuda.h"
#include "atoll/ops/block_diagonal/ref.h"
#include "atoll/ops/serve.h"

namespace atl::ops {

namespace {

struct Args {
  double scale;
  Tensor tall;
  std::span<const DiagonalBlock> blocks;
  Tensor wide;
};

Declined ref_forward(Run& run, const Args& a) {
  const std::int64_t n = a.wide.dim(0);
  const std::int64_t r = a.tall.dim(1);
  if (a.tall.dtype() == Dtype::kBf16) {
    return serve_host(run, [&] {
      ref::block_diagonal(a.scale, a.tall.data<Bf16>(), a.blocks, n, r, a.wide.data<Bf16>());
    });
  }
  return serve_any_float(run, a.tall.dtype(), [&](auto zero) {
    using T = decltype(zero);
    ref::block_diagonal(a.scale, a.tall.data<T>(), a.blocks, n, r, a.wide.data<T>());
  });
}

Declined ref_backward(Run& run, const Args& a) {
  return serve_any_float(run, a.tall.dtype(), [&](auto zero) {
    using T = decltype(zero);
    ref::block_diagonal_backward(a.scale, a.wide.data<T>(), a.blocks, a.tall.dim(1),
                                 a.tall.data<T>());
  });
}

// A few thousand elements beside products of millions: plain loops are all it takes.
constexpr Implementation<Args> kForward[] = {{"cuda",
                                              [](Run& run, const Args& a) {
                                                return cuda::block_diagonal(run, a.scale, a.tall,
                                                                            a.blocks, a.wide);
                                              }},
                                             {"ref", ref_forward}};
constexpr Implementation<Args> kBackward[] = {{"cuda",
                                               [](Run& run, const Args& a) {
                                                 return cuda::block_diagonal_backward(
                                                     run, a.scale, a.wide, a.blocks, a.tall);
                                               }},
                                              {"ref", ref_backward}};

void check(const Args& a) {
  std::int64_t rows = 0;
  for (const DiagonalBlock& block : a.blocks) {
    ATOLL_CHECK(
        block.row_begin >= 0 && block.rows >= 0 && block.row_begin + block.rows <= a.wide.dim(0),
        "rows {} + {} of {}", block.row_begin, block.rows, a.wide.spec().to_string());
    rows += block.rows;
  }
  const Shape tall = {rows, a.tall.dim(1)};
  const Shape wide = {a.wide.dim(0), static_cast<std::int64_t>(a.blocks.size()) * a.tall.dim(1)};
  check_spec("block_diagonal", {a.tall.dtype(), tall}, {a.tall});
  check_spec("block_diagonal", {a.tall.dtype(), wide}, {a.wide});
}

}  // namespace

void block_diagonal(Run& run, double scale, Tensor x, std::span<const DiagonalBlock> blocks,
                    Tensor y) {
  const Args args = {scale, x, blocks, y};
  check(args);
  dispatch<Args>("block_diagonal", kForward, run, args);
}

void block_diagonal_backward(Run& run, double scale, Tensor dy,
                             std::span<const DiagonalBlock> blocks, Tensor dx) {
  const Args args = {scale, dx, blocks, dy};
  check(args);
  dispatch<Args>("block_diagonal_backward", kBackward, run, args);
}

}  // namespace atl::ops
