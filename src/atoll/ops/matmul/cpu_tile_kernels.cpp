#include "atoll/ops/matmul/cpu_tile_kernels.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>

// clang-format off
#include "atoll/simd/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/ops/matmul/cpu_tile_kernels.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "atoll/ops/matmul/cpu_tile-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {

template <class Shape>
constexpr TileKernels kKernels = {
    {static_cast<std::int64_t>(Shape::kRows), static_cast<std::int64_t>(Shape::kCols)},
    pack_panels<Shape>,
    pack_tiles<Shape>,
    multiply_panels<Shape>};

const TileKernels& KernelsOf(Tile tile) {
  return tile == Tile::kWide ? kKernels<WideTile> : kKernels<TallTile>;
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::ops::cpu {

HWY_EXPORT(KernelsOf);

// Before the unnamed namespace: with a single instruction set Highway takes no qualified name.
const TileKernels& tile_kernels(Tile tile) {
  return HWY_DYNAMIC_DISPATCH(KernelsOf)(tile);
}

namespace {

// Whole tiles of either shape. Rows of a lie as far apart as GPT-2's, so that they meet in the
// first-level cache as they do in training.
constexpr std::int64_t kRows = 56, kCols = 96, kTerms = 256, kStride = 768;
constexpr int kRepeats = 9;  // the best of them: noise only ever slows a call down

// Of a CPU, by the calling thread: what else the machine does must not decide.
double thread_seconds() {
  timespec now = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Operands {
  alignas(64) float a[kRows * kStride] = {};
  alignas(64) float b[kCols * kTerms] = {};
  alignas(64) float c[kRows * kCols] = {};
};

double measure_speedup() {
  const auto operands = std::make_unique<Operands>();
  PanelProduct product;
  product.rows = kRows;
  product.cols = kCols;
  product.num_k = kTerms;
  product.a = operands->a;
  product.a_row = kStride;
  product.b = operands->b;
  product.c = operands->c;
  product.ldc = kCols;
  const auto seconds_of = [&](Tile tile) {
    const double start = thread_seconds();
    tile_kernels(tile).multiply(product);
    return thread_seconds() - start;
  };
  double tall = std::numeric_limits<double>::infinity(), wide = tall;
  for (int i = 0; i <= kRepeats; ++i) {
    const double one = seconds_of(Tile::kTall);
    const double other = seconds_of(Tile::kWide);
    if (i == 0) continue;  // brings operands into cache
    tall = std::min(tall, one);
    wide = std::min(wide, other);
  }
  return tall / wide;
}

// -1: not set.
std::atomic<int>& chosen() {
  static std::atomic<int> tile{-1};
  return tile;
}

}  // namespace

double wide_tile_speedup() {
  static const double speedup = measure_speedup();
  return speedup;
}

const TileKernels& tile_kernels() {
  const int set = chosen().load(std::memory_order_relaxed);
  if (set >= 0) return tile_kernels(static_cast<Tile>(set));
  return tile_kernels(wide_tile_speedup() >= kWideTileWorthIt ? Tile::kWide : Tile::kTall);
}

void set_tile(Tile tile) {
  chosen() = static_cast<int>(tile);
}

void reset_tile() {
  chosen() = -1;
}

}  // namespace atl::ops::cpu
#endif  // HWY_ONCE
