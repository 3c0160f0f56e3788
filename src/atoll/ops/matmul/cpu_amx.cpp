#include "atoll/ops/matmul/cpu_amx.h"

#include <algorithm>
#include <memory>

#include "atoll/ops/cpu/amx_tiles.h"
#include "atoll/ops/matmul/bf16_arithmetic.h"
#include "atoll/ops/serve.h"
#include "atoll/simd/amx.h"
#include "atoll/simd/convert.h"

namespace atl::ops::cpu {

namespace {

// Measured on a Xeon with 48 KiB of first-level and 2 MiB of second-level cache: 32 columns of a
// stretch of b stay in the first, a panel of b, the rows of a and their sums in half of the second.
constexpr std::int64_t kMaxStretch = 384;
constexpr std::int64_t kMaxRows = 128;
constexpr std::int64_t kMaxCols = 256;
// Rows of a that a task packs, of one term.
constexpr std::int64_t kMaxPackedRows = 256;
// Where sums are so long that operands come from memory, c is cut less often.
constexpr std::int64_t kLongSum = 8192;
constexpr std::int64_t kMaxLongCols = 384;
// Stretches of a panel, of which one operand is packed together.
constexpr std::int64_t kStretches = 3;
constexpr std::int64_t kPanelElements = kStretches * kMaxStretch * kMaxCols;
// Rows of c whose sums a thread keeps from panel to panel.
constexpr std::int64_t kMaxTaskRows = 1024;
constexpr std::int64_t kSumElements = kMaxTaskRows * kMaxCols;

/// A thread's room.
struct Room {
  alignas(64) Bf16 panel[kPanelElements];
  alignas(64) float sums[kSumElements];
  alignas(64) Bf16 last_step[kMaxRows * kAmxTerms];
  alignas(64) Bf16 last_rows[2 * kAmxBlock * kMaxStretch];
  alignas(64) float bias[kMaxLongCols];

  static Room& mine() {
    thread_local const auto room = std::make_unique_for_overwrite<Room>();
    // The analyzer takes what the thread owns for a local.
    return *room;  // NOLINT(clang-analyzer-cplusplus.NewDelete)
  }
};

static_assert(2 * kMaxRows <= kMaxCols, "rows of two terms must fit a panel");
static_assert(kMaxPackedRows <= kMaxCols, "packed rows must fit a panel");
static_assert(sizeof(Room) <= 2048 << 10, "ops/matmul/matmul.h says how much a thread keeps");

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// Even parts of at most `most`, each a multiple of `unit`.
std::int64_t even_part(std::int64_t total, std::int64_t most, std::int64_t unit) {
  return ceil_div(ceil_div(total, ceil_div(total, most)), unit) * unit;
}

/// Parts of at most `most`, whole blocks, as many for each thread where some size near allows it.
std::int64_t part_for(std::int64_t total, std::int64_t most, std::int64_t num_threads) {
  const std::int64_t fewest = ceil_div(total, most);
  for (std::int64_t parts = fewest; parts < std::max(2 * fewest, fewest + num_threads); ++parts) {
    const std::int64_t part = even_part(total, ceil_div(total, parts), kAmxBlock);
    if (ceil_div(total, part) % num_threads == 0) return part;
  }
  return even_part(total, std::max(kAmxBlock, std::min(most, ceil_div(total, num_threads))),
                   kAmxBlock);
}

bool shares_a(const MatmulShape& shape) {
  return shape.m <= shape.n;
}

/// Elements of `count` rows or columns, packed over all k.
std::int64_t packed_elements(const MatmulShape& shape, std::int64_t count, bool two_terms) {
  return amx_padded(count) * amx_steps(shape.k) * kAmxTerms * (two_terms ? 2 : 1);
}

Spec shared_spec(const MatmulShape& shape, bool two_terms) {
  return {Dtype::kBf16,
          {shares_a(shape) ? packed_elements(shape, shape.m, two_terms)
                           : packed_elements(shape, shape.n, false)}};
}

/// A product under way: how it is cut, for the threads at hand.
class Cut {
 public:
  Cut(Run& run, const AmxMatmul& product)
      : run_(run),
        p_(product),
        shape_(product.shape),
        stretch_(even_part(shape_.k, kMaxStretch, kAmxTerms)),
        terms_(product.two_terms ? 2 : 1) {}

  void compute() {
    if (shape_.transpose != Transpose::kTN) return by_columns(nullptr);
    const Bf16* packed = pack_shared();
    shares_a(shape_) ? by_columns(packed) : by_rows(packed);
  }

 private:
  struct Range {
    std::int64_t begin, end;
    std::int64_t size() const { return end - begin; }
  };

  std::int64_t threads() const { return run_.threads().num_threads(); }
  std::int64_t all_steps() const { return amx_steps(shape_.k); }
  bool narrow() const { return p_.c.dtype() == Dtype::kBf16; }

  /// Where the elements of a from (k, m) on are stored, a being transposed.
  AmxSource transposed_a(std::int64_t k, std::int64_t m) const {
    return {p_.a + k * p_.lda + m * terms_, p_.lda};
  }

  /// The operand of a kTN product that all tasks read, packed.
  Bf16* pack_shared() {
    Run inner = run_;
    Bf16* const packed = inner.take_scratch(shared_spec(shape_, p_.two_terms)).data<Bf16>();
    const bool is_a = shares_a(shape_);
    const std::int64_t total = is_a ? shape_.m : shape_.n;
    const std::int64_t stretches = ceil_div(shape_.k, stretch_);
    const std::int64_t at_once = is_a ? kAmxBlock : 4 * kAmxBlock;
    run_.threads().run(ceil_div(total, at_once) * stretches, [&](std::int64_t task) {
      const std::int64_t at = task / stretches * at_once;
      const std::int64_t k = task % stretches * stretch_;
      const std::int64_t num_k = std::min(stretch_, shape_.k - k);
      const std::int64_t count = std::min(at_once, total - at);
      const std::int64_t tile = all_steps() * kAmxTile;
      if (is_a) {
        Bf16* const to = packed + (at / kAmxRows * tile + k * kAmxRows) * terms_;
        pack_a(k, num_k, at, count, tile * terms_, to);
      } else {
        amx_pack_right({p_.b + k * p_.ldb + at, p_.ldb}, num_k, count, tile,
                       packed + at / kAmxRows * tile + k * kAmxRows);
      }
    });
    return packed;
  }

  /// Packs rows [row, row + rows) of a transposed a.
  void pack_a(std::int64_t k, std::int64_t num_k, std::int64_t row, std::int64_t rows,
              std::int64_t tile, Bf16* to) const {
    amx_pack_left_transposed(transposed_a(k, row), num_k, rows, tile, p_.two_terms, to);
  }

  /// Tasks of columns, whose threads pack b. `tiles`: a, packed; null: it is read in place.
  void by_columns(const Bf16* tiles) {
    const std::int64_t most = shape_.k > kLongSum ? kMaxLongCols : kMaxCols;
    const std::int64_t cols = part_for(shape_.n, most, threads());
    const std::int64_t col_tasks = ceil_div(shape_.n, cols);
    // Fewer columns than threads: rows are shared out as well.
    const std::int64_t fit = kSumElements / cols / kAmxBlock * kAmxBlock;
    const std::int64_t wanted = ceil_div(shape_.m, ceil_div(threads(), col_tasks));
    const std::int64_t rows =
        even_part(shape_.m, std::max(kAmxBlock, std::min({kMaxTaskRows, fit, wanted})), kAmxBlock);
    run_.threads().run(col_tasks * ceil_div(shape_.m, rows), [&](std::int64_t task) {
      const std::int64_t row = task / col_tasks * rows;
      const std::int64_t col = task % col_tasks * cols;
      column_task(tiles, {row, std::min(shape_.m, row + rows)},
                  {col, std::min(shape_.n, col + cols)});
    });
  }

  void column_task(const Bf16* tiles, Range rows, Range cols) {
    Room& room = Room::mine();
    const std::int64_t fit = kPanelElements / amx_padded(cols.size()) / stretch_;
    const std::int64_t panel = stretch_ * std::min(kStretches, fit);
    const std::int64_t padded_rows = amx_padded(rows.size());
    take_bias(room, cols);
    const AmxScope scope;
    for (std::int64_t k = 0; k < shape_.k; k += panel) {
      const std::int64_t end_k = std::min(shape_.k, k + panel);
      const std::int64_t b_columns = amx_steps(end_k - k) * kAmxTile;
      pack_b(k, end_k - k, cols, b_columns, room.panel);
      for (std::int64_t row = rows.begin; row < rows.end; row += kMaxRows) {
        for (std::int64_t at = k; at < end_k; at += stretch_) {
          AmxProduct part = piece(room, row, cols.begin, at);
          // With a single panel these rows are done with before the next begin.
          const std::int64_t before = panel >= shape_.k ? 0 : row - rows.begin;
          part.partial = room.sums + before * kAmxBlock;
          part.partial_columns = kAmxBlock * (panel >= shape_.k ? kMaxRows : padded_rows);
          part.rows = std::min(kMaxRows, rows.end - row);
          part.cols = cols.size();
          part.b = room.panel + (at - k) * kAmxRows;
          part.b_columns = b_columns;
          part.a = tiles != nullptr ? packed_a(tiles, all_steps(), row, at)
                                    : placed_a(room, row, part.rows, at);
          const bool same_rows = at + stretch_ < end_k;
          const std::int64_t next = same_rows ? row : row + kMaxRows;
          if (next < rows.end) {
            const Range wanted = {next, std::min(next + kMaxRows, rows.end)};
            const std::int64_t from = same_rows ? at + stretch_ : k;
            part.ahead[0] = tiles == nullptr ? rows_ahead(wanted, from)
                                             : tiles_ahead(tiles, terms_, wanted, from);
          }
          if (at + stretch_ >= end_k && row + kMaxRows < rows.end) {
            part.ahead[1] =
                sums_ahead({row + kMaxRows, std::min(row + 2 * kMaxRows, rows.end)}, cols);
          }
          amx_multiply(part);
        }
      }
    }
  }

  /// Tasks of rows, whose threads pack a. `tiles`: b, packed.
  void by_rows(const Bf16* tiles) {
    // Each task reads all of b, which comes from the last cache: the more rows, the less often.
    const std::int64_t most = p_.two_terms ? kMaxRows : kMaxPackedRows;
    const std::int64_t rows = part_for(shape_.m, most, threads());
    run_.threads().run(ceil_div(shape_.m, rows), [&](std::int64_t task) {
      const std::int64_t row = task * rows;
      row_task(tiles, {row, std::min(shape_.m, row + rows)});
    });
  }

  void row_task(const Bf16* tiles, Range rows) {
    Room& room = Room::mine();
    const std::int64_t panel = kStretches * stretch_;
    const std::int64_t b_columns = all_steps() * kAmxTile;
    const AmxScope scope;
    for (std::int64_t k = 0; k < shape_.k; k += panel) {
      const std::int64_t end_k = std::min(shape_.k, k + panel);
      const std::int64_t steps = amx_steps(end_k - k);
      pack_a(k, end_k - k, rows.begin, rows.size(), steps * kAmxTile * terms_, room.panel);
      for (std::int64_t col = 0; col < shape_.n; col += kMaxCols) {
        const Range cols = {col, std::min(shape_.n, col + kMaxCols)};
        take_bias(room, cols);
        for (std::int64_t at = k; at < end_k; at += stretch_) {
          AmxProduct part = piece(room, rows.begin, col, at);
          // c takes the sums of each panel.
          part.is_first = at == k;
          part.is_last = at + stretch_ >= end_k;
          part.add = p_.accumulate || k > 0;
          if (end_k < shape_.k) part.bias = nullptr;
          part.partial = room.sums;
          part.partial_columns = amx_padded(rows.size()) * kAmxBlock;
          part.rows = rows.size();
          part.cols = cols.size();
          part.b = tiles + col / kAmxRows * b_columns + at * kAmxRows;
          part.b_columns = b_columns;
          part.a = packed_a(room.panel, steps, 0, at - k);
          const bool same_cols = at + stretch_ < end_k;
          const std::int64_t next = same_cols ? col : cols.end;
          if (next < shape_.n) {
            part.ahead[0] = tiles_ahead(tiles, 1, {next, std::min(shape_.n, next + kMaxCols)},
                                        same_cols ? at + stretch_ : k);
          }
          if (at + stretch_ >= end_k && cols.end < shape_.n) {
            part.ahead[1] = sums_ahead(rows, {cols.end, std::min(shape_.n, cols.end + kMaxCols)});
          }
          amx_multiply(part);
        }
      }
    }
  }

  /// What the stretch of k adds to c from (row, col) on; operands are still to be said.
  AmxProduct piece(Room& room, std::int64_t row, std::int64_t col, std::int64_t k) const {
    AmxProduct piece;
    piece.steps = amx_steps(std::min(stretch_, shape_.k - k));
    piece.is_first = k == 0;
    piece.is_last = k + stretch_ >= shape_.k;
    piece.add = p_.accumulate;
    if (p_.bias.defined()) piece.bias = room.bias;
    piece.ldc = p_.ldc;
    const std::int64_t at = row * p_.ldc + col;
    if (narrow()) piece.narrow = p_.c.data<Bf16>() + at;
    if (!narrow()) piece.c = p_.c.data<float>() + at;
    return piece;
  }

  AmxLeft packed_a(const Bf16* tiles, std::int64_t steps, std::int64_t row, std::int64_t k) const {
    AmxLeft a;
    a.step = kAmxTile * terms_;
    a.tile = steps * a.step;
    a.data = tiles + row / kAmxRows * a.tile + k * kAmxRows * terms_;
    a.low = p_.two_terms ? kAmxTile : 0;
    return a;
  }

  /// Rows of a as they lie, but for what is no whole tile.
  AmxLeft placed_a(Room& room, std::int64_t row, std::int64_t rows, std::int64_t k) const {
    const std::int64_t num_k = std::min(stretch_, shape_.k - k);
    AmxLeft a;
    a.data = p_.a + row * p_.lda + k * terms_;
    a.row_bytes = p_.lda * std::int64_t{sizeof(Bf16)};
    a.step = kAmxTerms * terms_;
    a.tile = kAmxRows * p_.lda;
    a.low = p_.two_terms ? kAmxTerms : 0;
    const std::int64_t odd_rows = rows % kAmxBlock;
    const std::int64_t odd_terms = p_.two_terms ? 0 : num_k % kAmxTerms;
    if (odd_terms > 0) {
      amx_pack_left({a.data + num_k - odd_terms, p_.lda}, odd_terms, rows - odd_rows, kAmxTile,
                    false, room.last_step);
      a.last_step = room.last_step;
    }
    if (odd_rows > 0) {
      amx_pack_left({a.data + (rows - odd_rows) * p_.lda, p_.lda}, num_k, odd_rows,
                    amx_steps(num_k) * kAmxTile * terms_, p_.two_terms, room.last_rows);
      a.last_rows = room.last_rows;
    }
    return a;
  }

  /// A stretch of rows of a, to be read where they lie.
  AmxAhead rows_ahead(Range rows, std::int64_t k) const {
    return {p_.a + rows.begin * p_.lda + k * terms_, p_.lda * std::int64_t{sizeof(Bf16)},
            std::min(stretch_, shape_.k - k) * terms_ * std::int64_t{sizeof(Bf16)}, rows.size()};
  }

  /// A stretch of packed rows or columns, whose tiles follow each other over all k.
  AmxAhead tiles_ahead(const Bf16* tiles, std::int64_t terms, Range range, std::int64_t k) const {
    const std::int64_t tile = all_steps() * kAmxTile * terms;
    const std::int64_t steps = amx_steps(std::min(stretch_, shape_.k - k));
    return {tiles + range.begin / kAmxRows * tile + k * kAmxRows * terms,
            tile * std::int64_t{sizeof(Bf16)},
            steps * kAmxTile * terms * std::int64_t{sizeof(Bf16)},
            (range.size() + kAmxRows - 1) / kAmxRows};
  }

  /// What is summed in c itself.
  AmxAhead sums_ahead(Range rows, Range cols) const {
    if (narrow()) return {};
    return {p_.c.data<float>() + rows.begin * p_.ldc + cols.begin,
            p_.ldc * std::int64_t{sizeof(float)}, cols.size() * std::int64_t{sizeof(float)},
            rows.size()};
  }

  void pack_b(std::int64_t k, std::int64_t num_k, Range cols, std::int64_t b_columns,
              Bf16* to) const {
    if (shape_.transpose == Transpose::kNT) {
      amx_pack_right_transposed({p_.b + cols.begin * p_.ldb + k, p_.ldb}, num_k, cols.size(),
                                b_columns, to);
    } else {
      amx_pack_right({p_.b + k * p_.ldb + cols.begin, p_.ldb}, num_k, cols.size(), b_columns, to);
    }
  }

  void take_bias(Room& room, Range cols) const {
    if (!p_.bias.defined()) return;
    if (p_.bias.dtype() == Dtype::kF32) {
      std::copy_n(p_.bias.data<float>() + cols.begin, cols.size(), room.bias);
    } else {
      simd::widen_rows(1, size(cols.size()), {p_.bias.data<Bf16>() + cols.begin, size(cols.size())},
                       {room.bias, size(cols.size())});
    }
  }

  static std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

  Run& run_;
  const AmxMatmul& p_;
  const MatmulShape& shape_;
  std::int64_t stretch_;
  std::int64_t terms_;
};

bool repays_packing(const MatmulShape& shape) {
  return shape.m >= kAmxBlock && shape.n >= kAmxBlock && shape.k >= kAmxTerms;
}

}  // namespace

void multiply_amx(Run& run, const AmxMatmul& product) {
  Cut(run, product).compute();
}

std::size_t amx_scratch_bytes(const MatmulShape& shape, bool two_terms) {
  return shape.transpose == Transpose::kTN ? align_up(shared_spec(shape, two_terms).bytes()) : 0;
}

std::size_t matmul_amx_scratch_bytes(const MatmulShape& shape) {
  return simd::has_amx() && repays_packing(shape) ? amx_scratch_bytes(shape, false) : 0;
}

Declined serve_amx(Run& run, const MatmulArgs& args) {
  if (!simd::has_amx()) return "no AMX on this CPU";
  if (args.a.dtype() != Dtype::kBf16 || args.b.dtype() != Dtype::kBf16) return "not bf16";
  if (args.c.dtype() != Dtype::kBf16 && args.c.dtype() != Dtype::kF32) return "a result in f64";
  if (!repays_packing(args.shape)) return "too small to repay packing";
  if (args.shape.transpose == Transpose::kTN && args.c.dtype() != Dtype::kF32) {
    return "a weight gradient that is rounded";
  }
  return serve_host(run, [&] {
    AmxMatmul product;
    product.shape = args.shape;
    product.a = args.a.data<Bf16>();
    product.lda = args.shape.transpose == Transpose::kTN ? args.shape.m : args.shape.k;
    product.b = args.b.data<Bf16>();
    product.ldb = args.shape.transpose == Transpose::kNT ? args.shape.k : args.shape.n;
    product.c = args.c;
    product.ldc = args.shape.n;
    product.bias = args.bias;
    product.accumulate = args.accumulate;
    multiply_amx(run, product);
  });
}

Declined matmul_amx(Run& run, const MatmulArgs& args) {
  if (args.a.dtype() != Dtype::kBf16 || args.b.dtype() != Dtype::kBf16) return "not bf16";
  if (bf16_arithmetic() != Bf16Arithmetic::kAmx) return "AMX is not chosen";
  return serve_amx(run, args);
}

}  // namespace atl::ops::cpu
