#include "atoll/ops/matmul/cuda_grouped_matmul.h"

#include <limits>

#include "atoll/ops/cuda/serve.h"
#include "atoll/ops/int8/cuda_narrow_weights.h"
#include "atoll/ops/matmul/grouped_matmul_kernels.cuh"
#include "atoll/ops/matmul/grouped_matmul_mma_kernels.cuh"

namespace atl::ops::cuda {

namespace {

// Sizes as the kernels have them.
struct Sizes {
  int groups;  // 0: no offsets
  int rows, height, width, length;
};

Sizes sizes_of(Transpose transpose, const Tensor& a, const Tensor& b, const Tensor& offsets,
               const Tensor& c) {
  const auto groups = offsets.defined() ? static_cast<int>(offsets.num_elements() - 1) : 0;
  const bool is_tn = transpose == Transpose::kTN;
  const auto rows = static_cast<int>(a.shape().num_rows());
  return {groups, rows, is_tn ? static_cast<int>(a.dim(-1)) : rows, static_cast<int>(c.dim(-1)),
          static_cast<int>(is_tn ? b.shape().num_rows() : a.dim(-1))};
}

template <typename Kernel, int kRows, int kColumns>
LaunchShape shape_of(const Sizes& sizes, bool is_tn) {
  const std::int64_t across = num_blocks(sizes.width, kColumns);
  const std::int64_t tiles =
      is_tn ? std::max(1, sizes.groups) : most_row_tiles<kRows>(sizes.rows, sizes.groups);
  return {.blocks_x =
              static_cast<std::uint32_t>(is_tn ? across * num_blocks(sizes.height, kRows) : across),
          .blocks_y = static_cast<std::uint32_t>(tiles),
          .threads = Kernel::kMaxThreads,
          .shared_bytes = Kernel::shared_bytes()};
}

template <typename A, typename B, typename C, Transpose kT>
void tiles(Run& run, const Sizes& sizes, Tensor a, Tensor b, Tensor offsets, Tensor c,
           bool accumulate, Tensor scales = {}) {
  using Kernel = ProductTiles<A, B, C, kT>;
  launch<GroupedMatmulKernels>(
      run, shape_of<Kernel, Kernel::kTile, Kernel::kTile>(sizes, kT == Transpose::kTN),
      Kernel{input<A>(a), input<B>(b), input<float>(scales), input<std::int32_t>(offsets),
             output<C>(c), sizes.rows, sizes.height, sizes.width, sizes.length, accumulate});
}

template <typename T>
void in_tiles(Run& run, Transpose transpose, const Sizes& sizes, Tensor a, Tensor b, Tensor offsets,
              Tensor c) {
  switch (transpose) {
    case Transpose::kNT:
      return tiles<T, T, T, Transpose::kNT>(run, sizes, a, b, offsets, c, false);
    case Transpose::kNN:
      return tiles<T, T, T, Transpose::kNN>(run, sizes, a, b, offsets, c, false);
    case Transpose::kTN:
      return tiles<T, T, float, Transpose::kTN>(run, sizes, a, b, offsets, c, true);
  }
}

template <Transpose kT, int kRows>
void with_tensor_cores(Run& run, const Sizes& sizes, Tensor a, Tensor b, Tensor offsets, Tensor c) {
  using Kernel = GroupedMma<kT, kRows>;
  launch<GroupedMmaKernels>(
      run, shape_of<Kernel, kRows, Kernel::kColumns>(sizes, kT == Transpose::kTN),
      Kernel{input<Bf16>(a), input<Bf16>(b), input<std::int32_t>(offsets),
             output<typename Kernel::C>(c), sizes.rows, sizes.height, sizes.width, sizes.length});
}

// Tiles of few rows where groups have few at the mean. That changes no bit.
void with_tensor_cores(Run& run, Transpose transpose, const Sizes& sizes, Tensor a, Tensor b,
                       Tensor offsets, Tensor c) {
  const bool has_few = sizes.rows < 64 * sizes.groups;
  switch (transpose) {
    case Transpose::kNT:
      return has_few ? with_tensor_cores<Transpose::kNT, 16>(run, sizes, a, b, offsets, c)
                     : with_tensor_cores<Transpose::kNT, 128>(run, sizes, a, b, offsets, c);
    case Transpose::kNN:
      return has_few ? with_tensor_cores<Transpose::kNN, 16>(run, sizes, a, b, offsets, c)
                     : with_tensor_cores<Transpose::kNN, 128>(run, sizes, a, b, offsets, c);
    case Transpose::kTN:
      return sizes.height <= 64
                 ? with_tensor_cores<Transpose::kTN, 64>(run, sizes, a, b, offsets, c)
                 : with_tensor_cores<Transpose::kTN, 128>(run, sizes, a, b, offsets, c);
  }
}

bool is_at_16_bytes(const Tensor& operand) {
  return reinterpret_cast<std::uintptr_t>(operand.raw()) % 16 == 0;
}

// Whether rows of all are whole packs of 8 elements that lie where copies may begin.
bool are_aligned(std::initializer_list<Tensor> operands) {
  for (const Tensor& operand : operands) {
    if (operand.dim(-1) % kChunk != 0 || !is_at_16_bytes(operand)) return false;
  }
  return true;
}

template <Transpose kT>
void mixed_mma(Run& run, const Sizes& sizes, const MatmulArgs& args) {
  using Kernel = MixedMma<kT>;
  const std::int64_t blocks =
      num_blocks(sizes.height, Kernel::kRows) * num_blocks(sizes.width, Kernel::kColumns);
  launch<GroupedMmaKernels>(
      run,
      {.blocks_x = static_cast<std::uint32_t>(blocks),
       .threads = Kernel::kMaxThreads,
       .shared_bytes = Kernel::shared_bytes()},
      Kernel{input<float>(args.a), input<Bf16>(args.b), output<typename Kernel::C>(args.c),
             sizes.height, sizes.width, sizes.length, args.accumulate});
}

Declined cannot_count(std::initializer_list<Tensor> operands) {
  for (const Tensor& operand : operands) {
    for (int i = 0; i < operand.shape().rank(); ++i) {
      if (operand.dim(i) > std::numeric_limits<std::int32_t>::max()) return "2^31 rows or columns";
    }
  }
  return kServed;
}

}  // namespace

namespace {

// Few rows a group at the mean, as when a token or some are generated.
bool has_few_rows(const Sizes& sizes) {
  return sizes.rows <= kFewRows * sizes.groups;
}

Declined grouped_bf16_weights(Run& run, Tensor a, Tensor b, Tensor offsets, Tensor c) {
  return serve_gpu(run, [&] {
    if (a.num_elements() == 0 || c.num_elements() == 0) return;
    const Sizes sizes = sizes_of(Transpose::kNT, a, b, offsets, c);
    if (has_few_rows(sizes)) return grouped_few_rows(run, a, b, offsets, c);
    tiles<float, Bf16, float, Transpose::kNT>(run, sizes, a, b, offsets, c, false);
  });
}

}  // namespace

Declined grouped_matmul_int8(Run& run, Tensor a, const Int8Matrix& w, Tensor offsets, Tensor c,
                             bool rounds) {
  if (const Declined reason = cannot_count({a, w.values, c})) return reason;
  return serve_gpu(run, [&] {
    if (a.num_elements() == 0 || c.num_elements() == 0) return;
    if (rounds) return grouped_rounded(run, a, w, offsets, c);
    const Sizes sizes = sizes_of(Transpose::kNT, a, w.values, offsets, c);
    if (has_few_rows(sizes)) return grouped_few_rows(run, a, w, offsets, c);
    tiles<float, std::uint8_t, float, Transpose::kNT>(run, sizes, a, w.values, offsets, c, false,
                                                      w.scales);
  });
}

Declined grouped_matmul(Run& run, Transpose transpose, Tensor a, Tensor b, Tensor offsets,
                        Tensor c) {
  if (const Declined reason = cannot_count({a, b, c})) return reason;
  if (a.dtype() == Dtype::kF32 && b.dtype() == Dtype::kBf16 && transpose == Transpose::kNT) {
    return grouped_bf16_weights(run, a, b, offsets, c);
  }
  if (a.dtype() != b.dtype()) return "rows and weights of experts of two dtypes";
  return serve_gpu_storage(run, a.dtype(), [&]<typename T>(T) {
    if (a.num_elements() == 0 || c.num_elements() == 0) return;
    const Sizes sizes = sizes_of(transpose, a, b, offsets, c);
    if constexpr (std::is_same_v<T, Bf16>) {
      if (are_aligned({a, b, c})) {
        return with_tensor_cores(run, transpose, sizes, a, b, offsets, c);
      }
    }
    in_tiles<T>(run, transpose, sizes, a, b, offsets, c);
  });
}

Declined mixed_matmul(Run& run, const MatmulArgs& args) {
  const bool is_mixed = args.a.dtype() == Dtype::kF32 && args.b.dtype() == Dtype::kBf16;
  const Transpose transpose = args.shape.transpose;
  const bool is_tn = transpose == Transpose::kTN;
  if (!is_mixed || transpose == Transpose::kNT || args.bias.defined() ||
      args.c.dtype() != (is_tn ? Dtype::kF32 : Dtype::kBf16)) {
    return "operands of two dtypes";
  }
  if (const Declined reason = cannot_count({args.a, args.b, args.c})) return reason;
  return serve_gpu(run, [&] {
    const Sizes sizes = sizes_of(transpose, args.a, args.b, {}, args.c);
    if (are_aligned({args.b, args.c}) && args.a.dim(-1) % 4 == 0 && is_at_16_bytes(args.a)) {
      return is_tn ? mixed_mma<Transpose::kTN>(run, sizes, args)
                   : mixed_mma<Transpose::kNN>(run, sizes, args);
    }
    is_tn ? tiles<float, Bf16, float, Transpose::kTN>(run, sizes, args.a, args.b, {}, args.c,
                                                      args.accumulate)
          : tiles<float, Bf16, Bf16, Transpose::kNN>(run, sizes, args.a, args.b, {}, args.c,
                                                     args.accumulate);
  });
}

}  // namespace atl::ops::cuda
