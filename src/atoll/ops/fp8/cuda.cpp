#include "atoll/ops/fp8/cuda.h"

#include <algorithm>

#include "atoll/device/fake_cuda/fake_cuda.h"
#include "atoll/ops/cuda/products.h"
#include "atoll/ops/cuda/serve.h"
#include "atoll/ops/fp8/kernels.cuh"
#include "atoll/ops/fp8/ref.h"

namespace atl::ops::cuda {

namespace {

constexpr std::int64_t kMostTiles = 65535;  // rows of blocks that a GPU takes at a time

std::int64_t num_parts(std::int64_t elements) {
  constexpr int kEach =
      LargestMagnitude::kMaxThreads * LargestMagnitude::kV * LargestMagnitude::kAtOnce;
  return std::clamp<std::int64_t>(num_blocks(elements, kEach), 1, LargestMagnitude::kMostBlocks);
}

Spec largest_spec(std::int64_t elements) {
  return {Dtype::kI32, {num_parts(elements)}};
}

Global<std::uint32_t> words(const Tensor& tensor) {
  return {static_cast<std::uint32_t*>(tensor.raw()), tensor.num_elements()};
}

Tensor find_largest(Run& run, const Tensor& x) {
  const Tensor largest = run.take_scratch(largest_spec(x.num_elements()));
  launch<Fp8Kernels>(run,
                     {.blocks_x = static_cast<std::uint32_t>(largest.num_elements()),
                      .threads = LargestMagnitude::kMaxThreads,
                      .shared_bytes = LargestMagnitude::shared_bytes()},
                     LargestMagnitude{.x = input<Bf16>(x), .largest = words(largest)});
  return largest;
}

template <Fp8Format kFormat, Fp8Tile kTile, bool kTransposed>
void launch_rounding(Run& run, const RoundToFp8Args& args) {
  using Kernel = RoundToFp8<kFormat, kTile, kTransposed>;
  Run inner = run;
  Global<const std::uint32_t> largest;
  if constexpr (kTile == Fp8Tile::kTensor) {
    const auto found = words(find_largest(inner, args.x));
    largest = {found.data, found.size};
  }
  launch<Fp8Kernels>(run,
                     {.blocks_x = static_cast<std::uint32_t>(num_blocks(args.cols, Kernel::kSize)),
                      .blocks_y = static_cast<std::uint32_t>(num_blocks(args.rows, Kernel::kSize)),
                      .threads = Kernel::kMaxThreads,
                      .shared_bytes = Kernel::shared_bytes()},
                     Kernel{.x = input<Bf16>(args.x),
                            .codes = output<std::uint8_t>(args.out.codes),
                            .scales = output<float>(args.out.scales),
                            .largest = largest,
                            .rows = args.rows,
                            .cols = args.cols});
}

template <Fp8Format kFormat, Fp8Tile kTile>
void launch_rounding(Run& run, const RoundToFp8Args& args) {
  args.transposed ? launch_rounding<kFormat, kTile, true>(run, args)
                  : launch_rounding<kFormat, kTile, false>(run, args);
}

}  // namespace

Declined round_to_fp8(Run& run, const RoundToFp8Args& args) {
  const Fp8Matrix& out = args.out;
  if (num_fp8_blocks(args.rows) > kMostTiles) return "more than 8 million rows";
  if (out.format == Fp8Format::kE5M2 && out.tile != Fp8Tile::kTensor) return "e5m2 in blocks";
  return serve_gpu(run, [&] {
    if (out.format == Fp8Format::kE5M2) {
      launch_rounding<Fp8Format::kE5M2, Fp8Tile::kTensor>(run, args);
    } else if (out.tile == Fp8Tile::kTensor) {
      launch_rounding<Fp8Format::kE4M3, Fp8Tile::kTensor>(run, args);
    } else if (out.tile == Fp8Tile::kRow) {
      launch_rounding<Fp8Format::kE4M3, Fp8Tile::kRow>(run, args);
    } else {
      launch_rounding<Fp8Format::kE4M3, Fp8Tile::kBlock>(run, args);
    }
  });
}

std::size_t round_to_fp8_scratch_bytes(std::int64_t elements) {
  return align_up(largest_spec(elements).bytes());
}

Declined matmul_fp8(Run& run, const MatmulFp8Args& args) {
  if (run.stream->device().kind() != DeviceKind::kCuda) return "not in a GPU's memory";
  // What cuBLASLt does not take, the fake GPU does not either.
  if (args.bias.defined() && args.c.dtype() != Dtype::kBf16) return "a bias beside f32";
  if (args.a.format == Fp8Format::kE5M2 && args.b.format == Fp8Format::kE5M2) return "two of e5m2";
  if (args.a.tile == Fp8Tile::kBlock) return "blocks on the left";
  if (args.sums == Fp8Sums::kFast && args.a.tile != Fp8Tile::kTensor) return "fast sums of blocks";
  if ((args.a.tile == Fp8Tile::kTensor) != (args.b.tile == Fp8Tile::kTensor)) {
    return "a scale of a matrix beside scales of parts";
  }
  auto* stream = dynamic_cast<fake_cuda::FakeStream*>(run.stream);
  if (stream == nullptr) return multiply_fp8(run, args);
  const bool in_blocks = args.a.tile != Fp8Tile::kTensor;
  stream->call_library(
      fmt::format("matmul_fp8 {} x {} x {}{}{}{}{}", args.m, args.n, args.k,
                  in_blocks                     ? ", blocks"
                  : args.sums == Fp8Sums::kFast ? ", fast sums"
                                                : "",
                  args.bias.defined() ? ", bias" : "", args.accumulate ? ", accumulates" : "",
                  args.residual.defined() ? ", residual" : ""),
      [args, &threads = run.threads()] { ref::matmul_fp8(threads, args); });
  return kServed;
}

}  // namespace atl::ops::cuda
