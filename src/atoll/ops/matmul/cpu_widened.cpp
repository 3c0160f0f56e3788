#include "atoll/ops/matmul/cpu_widened.h"

#include <algorithm>
#include <memory>

#include "atoll/ops/matmul/cpu_dnnl.h"
#include "atoll/ops/serve.h"
#include "atoll/simd/convert.h"

namespace atl::ops::cpu {

namespace {

// Long sums are cut into panels, so that the widened pieces stay in the second-level cache however
// long a row is: the input gradient of a head sums over the vocabulary.
constexpr std::int64_t kMaxPanel = 512;

/// A thread's pieces in f32.
struct Pieces {
  alignas(64) float a[kMaxBlockRows * kMaxPanel];
  alignas(64) float b[kMaxPanel * kMaxBlockCols];
  alignas(64) std::byte packed[kMaxPanel * kMaxBlockCols * sizeof(float)];
  alignas(64) float c[kMaxGroup * kMaxBlockRows * kMaxBlockCols];
  alignas(64) float bias[kMaxBlockCols];

  static Pieces& mine() {
    thread_local const auto pieces = std::make_unique_for_overwrite<Pieces>();
    return *pieces;
  }
};

static_assert(sizeof(Pieces) < 3600 << 10, "ops/matmul/matmul.h says how much a thread keeps");

struct Piece {
  const float* data;
  std::int64_t ld;
};

/// The area of a matrix with rows of `stride` elements, in f32: as it lies, or widened into `room`,
/// whose rows are `room_ld` apart.
Piece piece_of(const Tensor& stored, std::int64_t stride, const MatmulArea& area, float* room,
               std::int64_t room_ld) {
  const std::int64_t offset = area.row * stride + area.col;
  if (stored.dtype() == Dtype::kF32) return {stored.data<float>() + offset, stride};
  simd::widen_rows(static_cast<std::size_t>(area.rows), static_cast<std::size_t>(area.cols),
                   {stored.data<Bf16>() + offset, static_cast<std::size_t>(stride)},
                   {room, static_cast<std::size_t>(room_ld)});
  return {room, room_ld};
}

/// Rows [row, row + rows) and columns [col, col + cols) of c.
class Group {
 public:
  Group(const MatmulArgs& args, const MatmulGrid& grid, const MatmulArea& area)
      : args_(args), grid_(grid), area_(area), pieces_(Pieces::mine()) {
    const std::int64_t offset = area.row * args.shape.n + area.col;
    if (args.c.dtype() == Dtype::kF32) {
      c_ = args.c.data<float>() + offset;
      ldc_ = args.shape.n;
    } else {
      c_ = pieces_.c;
      ldc_ = area.cols;
    }
  }

  void compute() {
    const bool widened_c = args_.c.dtype() == Dtype::kBf16;
    if (widened_c && args_.accumulate) {
      piece_of(args_.c, args_.shape.n, area_, pieces_.c, ldc_);
    }
    const std::int64_t panel = even_block(args_.shape.k, kMaxPanel, 16);
    for (std::int64_t k = 0; k < args_.shape.k; k += panel) {
      add_panel(k, std::min(panel, args_.shape.k - k));
    }
    if (!widened_c) return;
    simd::narrow_rows(static_cast<std::size_t>(area_.rows), static_cast<std::size_t>(area_.cols),
                      {pieces_.c, static_cast<std::size_t>(ldc_)},
                      {args_.c.data<Bf16>() + area_.row * args_.shape.n + area_.col,
                       static_cast<std::size_t>(args_.shape.n)});
  }

 private:
  /// Adds the terms [k, k + size) of every sum.
  void add_panel(std::int64_t k, std::int64_t size) {
    const MatmulShape& shape = args_.shape;
    MatmulBlock block;
    block.m = grid_.m_block;
    block.n = area_.cols;
    block.k = size;
    block.a_transposed = shape.transpose == Transpose::kTN;
    block.b_transposed = shape.transpose == Transpose::kNT;
    // The same for all blocks of rows: the packed layout may depend on every leading dim.
    const std::int64_t a_stride = block.a_transposed ? shape.m : shape.k;
    const std::int64_t a_room_ld = block.a_transposed ? grid_.m_block : size;
    block.lda = args_.a.dtype() == Dtype::kF32 ? a_stride : a_room_ld;
    block.ldc = ldc_;
    const Piece b =
        block.b_transposed
            ? piece_of(args_.b, shape.k, {area_.col, k, area_.cols, size}, pieces_.b, size)
            : piece_of(args_.b, shape.n, {k, area_.col, size, area_.cols}, pieces_.b, area_.cols);
    block.ldb = b.ld;
    Operands at = {nullptr, b.data, pack(block, b.data), nullptr, nullptr};
    if (at.packed != nullptr) block.layout_m = grid_.m_block;
    block.bias = args_.bias.defined() && k == 0;
    block.accumulate = args_.accumulate || k > 0;
    if (block.bias) {
      const MatmulArea columns = {0, area_.col, 1, area_.cols};
      at.bias = piece_of(args_.bias, shape.n, columns, pieces_.bias, area_.cols).data;
    }
    for (std::int64_t row = 0; row < area_.rows; row += grid_.m_block) {
      block.m = std::min(grid_.m_block, area_.rows - row);
      const MatmulArea rows = block.a_transposed ? MatmulArea{k, area_.row + row, size, block.m}
                                                 : MatmulArea{area_.row + row, k, block.m, size};
      at.a = piece_of(args_.a, a_stride, rows, pieces_.a, a_room_ld).data;
      at.c = c_ + row * ldc_;
      multiply_block(block, at);
    }
  }

  /// b in the layout that the kernels like best, when several blocks of rows share the repacking.
  const std::byte* pack(MatmulBlock block, const float* b) {
    if (area_.rows <= grid_.m_block) return nullptr;
    block.layout_m = grid_.m_block;
    const std::int64_t tail_m = args_.shape.m - (grid_.m_blocks - 1) * grid_.m_block;
    return pack_block(block, tail_m, b, pieces_.packed) ? pieces_.packed : nullptr;
  }

  const MatmulArgs& args_;
  const MatmulGrid& grid_;
  MatmulArea area_;
  Pieces& pieces_;
  float* c_;
  std::int64_t ldc_;
};

bool is_f32_or_bf16(const Tensor& tensor) {
  return tensor.dtype() == Dtype::kF32 || tensor.dtype() == Dtype::kBf16;
}

}  // namespace

Declined matmul_widened(Run& run, const MatmulArgs& args) {
  if (args.shape.k == 0) return "nothing to sum";
  for (const Tensor& tensor : {args.a, args.b, args.c}) {
    if (!is_f32_or_bf16(tensor)) return "neither f32 nor bf16";
  }
  return serve_host(run, [&] {
    const MatmulGrid grid = cut_matmul(args.shape);
    for_each_group(run, args.shape, grid,
                   [&](const MatmulArea& area) { Group(args, grid, area).compute(); });
  });
}

}  // namespace atl::ops::cpu
