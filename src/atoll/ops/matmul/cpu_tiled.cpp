#include "atoll/ops/matmul/cpu_tiled.h"

#include <unistd.h>

#include <algorithm>
#include <memory>

#include "atoll/ops/matmul/cpu_tile_kernels.h"
#include "atoll/ops/serve.h"

namespace atl::ops::cpu {

namespace {

// A sum is read and written once for up to 768 terms, a once for 256 columns.
constexpr std::int64_t kMaxStretch = 768;
constexpr std::int64_t kMaxCols = 256;

/// How a product is cut, by the size of a core's second-level cache.
struct BlockSizes {
  std::int64_t rows;         ///< of a read in place, for one piece of packed b
  std::int64_t packed_rows;  ///< of a that a task packs
  std::int64_t tasks;        ///< wanted for each thread
};
// Measured on Zen 5 with 1 MiB, which holds the rows of a and, of the packed b, what is being read.
constexpr BlockSizes kBlocksOfSmallCache = {84, 84, 4};
// Measured on an Intel Xeon with 2 MiB (decision 0046). Where c has few columns larger tasks read a
// half as often from the last cache, which is slow there.
constexpr BlockSizes kBlocksOfLargeCache = {84, 200, 2};
constexpr std::int64_t kLargeCache = std::int64_t{2} << 20;

const BlockSizes& block_sizes() {
  static const bool large = ::sysconf(_SC_LEVEL2_CACHE_SIZE) >= kLargeCache;
  return large ? kBlocksOfLargeCache : kBlocksOfSmallCache;
}

// Tiles that are packed together: with AVX-512 their rows fill whole cache lines.
constexpr std::int64_t kTilesAtOnce = 8;
// Of a that is read in place by several tasks, this much at a time: it is to stay in the last
// cache.
constexpr std::int64_t kMaxSlabBytes = std::int64_t{8} << 20;

/// A thread's own packed piece of one operand.
struct PackRoom {
  alignas(64) float data[kMaxStretch * kMaxCols];

  static float* mine() {
    thread_local const auto room = std::make_unique_for_overwrite<PackRoom>();
    return room->data;
  }
};

static_assert(sizeof(PackRoom) <= 768 << 10, "ops/matmul/matmul.h says how much a thread keeps");
static_assert(kBlocksOfSmallCache.packed_rows <= kMaxCols &&
              kBlocksOfLargeCache.packed_rows <= kMaxCols);

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// Even parts of at most `most`, each a multiple of `unit`.
std::int64_t even_part(std::int64_t total, std::int64_t most, std::int64_t unit) {
  const std::int64_t part = ceil_div(total, ceil_div(total, most));
  return ceil_div(part, unit) * unit;
}

/// `total` items in even parts of at most `most`, whole units, and enough of them to keep threads
/// busy. Where the parts are few they are as many for each thread, if some size allows.
class Parts {
 public:
  Parts(std::int64_t total, std::int64_t most, std::int64_t unit, std::int64_t num_threads)
      : total_(total) {
    const std::int64_t wanted =
        ceil_div(ceil_div(total, block_sizes().tasks * num_threads), unit) * unit;
    const std::int64_t fit = std::clamp(wanted, unit, most / unit * unit);
    part_ = even_part(total, fit, unit);
    const std::int64_t fewest = ceil_div(total, fit);
    for (std::int64_t parts = fewest; parts < std::min(2 * fewest, 32 * num_threads); ++parts) {
      const std::int64_t part = even_part(total, ceil_div(total, parts), unit);
      if (ceil_div(total, part) % num_threads != 0) continue;
      part_ = part;
      break;
    }
  }

  std::int64_t size() const { return ceil_div(total_, part_); }
  std::int64_t begin(std::int64_t part) const { return std::min(total_, part * part_); }

 private:
  std::int64_t total_;
  std::int64_t part_;
};

/// The operand of a kTN product that all tasks read, packed.
Spec shared_spec(const MatmulShape& shape) {
  const TileSize tile = tile_kernels().size;
  const bool is_a = shape.m <= shape.n;
  const std::int64_t unit = is_a ? tile.rows : tile.cols;
  return {Dtype::kF32, {ceil_div(is_a ? shape.m : shape.n, unit) * unit, shape.k}};
}

/// A product under way: how it is cut, for the threads and the instruction set at hand.
class Cut {
 public:
  Cut(Run& run, const TiledProduct& product)
      : run_(run),
        p_(product),
        shape_(product.shape),
        kernels_(tile_kernels()),
        tile_(kernels_.size),
        stretch_(even_part(shape_.k, kMaxStretch, 4)) {}

  void compute() {
    if (p_.accumulate && p_.bias != nullptr) add_bias();
    if (shape_.transpose != Transpose::kTN) return by_columns(nullptr);
    float* packed = pack_shared();
    shape_.m <= shape_.n ? by_columns(packed) : by_rows(packed);
  }

 private:
  std::int64_t threads() const { return run_.threads().num_threads(); }

  /// The operand of a kTN product that all tasks read: a in tiles, or b in panels for each stretch.
  float* pack_shared() {
    const bool is_a = shape_.m <= shape_.n;
    const std::int64_t unit = is_a ? tile_.rows : tile_.cols;
    const std::int64_t total = is_a ? shape_.m : shape_.n;
    const std::int64_t padded = ceil_div(total, unit) * unit;
    Run inner = run_;
    float* packed = inner.take_scratch(shared_spec(shape_)).data<float>();
    const std::int64_t stretches = ceil_div(shape_.k, stretch_);
    const std::int64_t at_once = unit * kTilesAtOnce;
    run_.threads().run(ceil_div(total, at_once) * stretches, [&](std::int64_t task) {
      const std::int64_t at = task / stretches * at_once;
      const std::int64_t k = task % stretches * stretch_;
      const std::int64_t num_k = std::min(stretch_, shape_.k - k);
      const std::int64_t count = std::min(at_once, total - at);
      if (is_a) {
        kernels_.pack_tiles(p_.a + k * shape_.m + at, shape_.m, count, num_k, unit * shape_.k,
                            packed + at * shape_.k + k * unit);
      } else {
        kernels_.pack_panels({p_.b + k * shape_.n + at, shape_.n, false}, count, num_k,
                             packed + k * padded + at * num_k);
      }
    });
    return packed;
  }

  /// What [k, k + num_k) adds to c from (row, column) on; operands are still to be said.
  PanelProduct piece(std::int64_t row, std::int64_t column, std::int64_t k,
                     std::int64_t num_k) const {
    PanelProduct piece;
    piece.num_k = num_k;
    piece.c = p_.c + row * shape_.n + column;
    piece.ldc = shape_.n;
    piece.add = p_.accumulate || k > 0;
    if (!piece.add && p_.bias != nullptr) piece.start = p_.bias + column;
    return piece;
  }

  /// Each task packs its columns of b and multiplies them by all rows of a, or by a share of them
  /// where there are more threads than columns feed. `tiles`: a, packed; null: it is read in place.
  void by_columns(const float* tiles) {
    const Parts cols(shape_.n, kMaxCols, tile_.cols, threads());
    const std::int64_t col_tasks = cols.size();
    const std::int64_t row_tasks =
        std::min(ceil_div(shape_.m, block_sizes().rows), ceil_div(2 * threads(), col_tasks));
    const std::int64_t rows = even_part(shape_.m, ceil_div(shape_.m, row_tasks), tile_.rows);
    // Tasks read all of a in turn: where it is long, together and a slab at a time.
    const std::int64_t fit = kMaxSlabBytes / (shape_.m * std::int64_t{sizeof(float)});
    const std::int64_t slab = std::max<std::int64_t>(1, fit / stretch_) * stretch_;
    for (std::int64_t k = 0; k < shape_.k; k += slab) {
      const std::int64_t end_k = std::min(shape_.k, k + slab);
      run_.threads().run(col_tasks * ceil_div(shape_.m, rows), [&](std::int64_t task) {
        const std::int64_t row = task / col_tasks * rows;
        const std::int64_t column = task % col_tasks;
        column_task(tiles, row, std::min(shape_.m, row + rows), cols.begin(column),
                    cols.begin(column + 1), k, end_k);
      });
    }
  }

  void column_task(const float* tiles, std::int64_t row, std::int64_t end_row, std::int64_t column,
                   std::int64_t end_column, std::int64_t begin_k, std::int64_t end_k) {
    float* panels = PackRoom::mine();
    const bool transposed = shape_.transpose == Transpose::kNT;
    const std::int64_t ldb = transposed ? shape_.k : shape_.n;
    const std::int64_t most = block_sizes().rows / tile_.rows * tile_.rows;
    for (std::int64_t k = begin_k; k < end_k; k += stretch_) {
      const std::int64_t num_k = std::min(stretch_, end_k - k);
      const float* b = p_.b + (transposed ? column * ldb + k : k * ldb + column);
      kernels_.pack_panels({b, ldb, transposed}, end_column - column, num_k, panels);
      for (std::int64_t at = row; at < end_row; at += most) {
        PanelProduct part = piece(at, column, k, num_k);
        part.rows = std::min(most, end_row - at);
        part.cols = end_column - column;
        part.b = panels;
        if (tiles != nullptr) {
          part.a = tiles + at * shape_.k + k * tile_.rows;
          part.a_tile = tile_.rows * shape_.k;
        } else {
          part.a = p_.a + at * shape_.k + k;
          part.a_row = shape_.k;
          if (at + most < end_row) {
            part.next_a = part.a + most * shape_.k;
          } else if (k + stretch_ < end_k) {
            part.next_a = p_.a + row * shape_.k + k + stretch_;
          }
        }
        kernels_.multiply(part);
      }
    }
  }

  /// Each task packs its rows of op(a) and multiplies them by all of b, packed in `panels`.
  void by_rows(const float* panels) {
    const Parts rows(shape_.m, block_sizes().packed_rows, tile_.rows, threads());
    const std::int64_t padded = ceil_div(shape_.n, tile_.cols) * tile_.cols;
    run_.threads().run(rows.size(), [&](std::int64_t task) {
      float* tiles = PackRoom::mine();
      const std::int64_t row = rows.begin(task);
      const std::int64_t num_rows = rows.begin(task + 1) - row;
      for (std::int64_t k = 0; k < shape_.k; k += stretch_) {
        PanelProduct part = piece(row, 0, k, std::min(stretch_, shape_.k - k));
        part.rows = num_rows;
        part.cols = shape_.n;
        part.a = tiles;
        part.a_tile = tile_.rows * part.num_k;
        part.b = panels + k * padded;
        kernels_.pack_tiles(p_.a + k * shape_.m + row, shape_.m, num_rows, part.num_k, part.a_tile,
                            tiles);
        kernels_.multiply(part);
      }
    });
  }

  void add_bias() {
    run_.threads().run_chunked(shape_.m, 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin * shape_.n; i < end * shape_.n; ++i) {
        p_.c[i] += p_.bias[i % shape_.n];
      }
    });
  }

  Run& run_;
  const TiledProduct& p_;
  const MatmulShape& shape_;
  const TileKernels& kernels_;
  TileSize tile_;
  std::int64_t stretch_;
};

bool repays_packing(const MatmulShape& shape) {
  return shape.m >= kRowsThatRepayPacking && shape.n >= kColumnsThatRepayPacking && shape.k > 0;
}

}  // namespace

void multiply_tiled(Run& run, const TiledProduct& product) {
  Cut(run, product).compute();
}

std::size_t tiled_scratch_bytes(const MatmulShape& shape) {
  return shape.transpose == Transpose::kTN ? align_up(shared_spec(shape).bytes()) : 0;
}

std::size_t matmul_tiled_scratch_bytes(const MatmulShape& shape) {
  return repays_packing(shape) ? tiled_scratch_bytes(shape) : 0;
}

Declined matmul_tiled(Run& run, const MatmulArgs& args) {
  if (!args.all_of(Dtype::kF32)) return "not f32";
  if (!repays_packing(args.shape)) return "too small to repay packing";
  return serve_host(run, [&] {
    multiply_tiled(run,
                   {args.shape, args.a.data<float>(), args.b.data<float>(), args.c.data<float>(),
                    args.bias.defined() ? args.bias.data<float>() : nullptr, args.accumulate});
  });
}

}  // namespace atl::ops::cpu
