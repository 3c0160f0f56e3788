#pragma once

// Factors of low rank: a row of blocks for each matrix. Operations are those of ops/ref in the same
// order, on every GPU, so that ranks send a CPU's bytes; tensor cores would have others.

#include "atoll/ops/codes/factors_layout.h"
#include "atoll/ops/codes/kernels.cuh"

namespace atl::ops::cuda {

/// Matrices and their factors; see ops/codes/factors.h.
struct FactorOperands {
  Global<const std::int64_t> matrices;
  Global<float> m, p, q, residual;
  std::int64_t rank, m_first;

  ATOLL_DEVICE std::int64_t at(int column) const {
    return matrices.load(std::int64_t{block_y()} * kFactorColumns + column);
  }
};

constexpr int kDotColumns = 8;

/// M += residual, and P^T = Q^T M^T: a warp for each four rows, of which pieces go through shared
/// memory. In it a lane has one of eight columns of a row's sums, four of the r sums at a time.
struct ProjectRows {
  static constexpr const char* kName = "project_rows";
  static constexpr int kMaxThreads = 256;
  static constexpr int kRows = kWarp / kDotColumns;
  static constexpr int kAtOnce = 4;
  static constexpr int kPiece = 2 * kWarp;              // columns
  static constexpr int kStride = kPiece + kDotColumns;  // rows begin in different banks
  static constexpr int kLoads = kRows * kPiece / kWarp;
  FactorOperands x;

  static constexpr int shared_bytes() { return kMaxThreads / kWarp * kRows * kStride * 4; }

  /// Columns [column, column + kPiece) of `rows` rows into shared memory, with the residual if
  /// `adds`; the rest is zeroes.
  ATOLL_DEVICE void load(const Shared<float>& box, std::int64_t m_at, std::int64_t residual_at,
                         std::int64_t cols, std::int64_t column, std::int64_t rows,
                         bool adds) const {
    float values[kLoads], residual[kLoads];
    const auto place = [&](int i) { return i / 2 * cols + column + i % 2 * kWarp + lane(); };
    const auto is_there = [&](int i) {
      return i / 2 < rows && column + i % 2 * kWarp + lane() < cols;
    };
    ATOLL_UNROLL
    for (int i = 0; i < kLoads; ++i) values[i] = is_there(i) ? x.m.load(m_at + place(i)) : 0.0F;
    if (adds) {
      ATOLL_UNROLL
      for (int i = 0; i < kLoads; ++i)
        residual[i] = is_there(i) ? x.residual.load(residual_at + place(i)) : 0;
      ATOLL_UNROLL
      for (int i = 0; i < kLoads; ++i) {
        values[i] += residual[i];
        if (is_there(i)) x.m.store(m_at + place(i), values[i]);
      }
    }
    sync_warp();
    ATOLL_UNROLL
    for (int i = 0; i < kLoads; ++i) box.store(i / 2 * kStride + i % 2 * kWarp + lane(), values[i]);
    sync_warp();
  }
  /// Adds a piece's products to this lane's column of kAtOnce sums, which begin at q_at and lie
  /// q_apart[k] behind it. The product of two f32 is exact in double.
  ATOLL_DEVICE void add(double (&sums)[kAtOnce], const Shared<float>& box, std::int64_t q_at,
                        const int (&q_apart)[kAtOnce], int count) const {
    const int own = lane() / kDotColumns * kStride + lane() % kDotColumns;
    for (int j = 0; j < count; j += kDotColumns) {
      const auto value = static_cast<double>(box.load(own + j));
      ATOLL_UNROLL
      for (int k = 0; k < kAtOnce; ++k) {
        sums[k] = fma(value, static_cast<double>(x.q.load(q_at + q_apart[k] + j)), sums[k]);
      }
    }
  }
  ATOLL_DEVICE void operator()() const {
    const std::int64_t all_rows = x.at(kFactorRows), cols = x.at(kFactorCols);
    const std::int64_t row = (std::int64_t{block_x()} * (num_threads() / kWarp) + warp()) * kRows;
    if (row >= all_rows) return;
    const std::int64_t rows = all_rows - row;
    const std::int64_t m_at = x.at(kFactorBegin) - x.m_first + row * cols;
    const std::int64_t residual_at = x.at(kFactorResidual) + row * cols, q_at = x.at(kFactorQ);
    const auto box = shared_memory<float>(warp() * kRows * kStride * 4, kRows * kStride);
    const std::int64_t whole = cols / kDotColumns * kDotColumns, end = x.rank;
    const int own = lane() / kDotColumns, column = lane() % kDotColumns;
    for (std::int64_t first = 0; first < x.rank; first += kAtOnce) {
      int q_apart[kAtOnce];
      ATOLL_UNROLL
      for (int k = 0; k < kAtOnce; ++k) {
        q_apart[k] = static_cast<int>((first + k < end ? first + k : end - 1) * cols);
      }
      double sums[kAtOnce] = {};
      for (std::int64_t at = 0; at < cols; at += kPiece) {
        load(box, m_at, residual_at, cols, at, rows, x.residual.size > 0 && first == 0);
        const std::int64_t left = whole - at;
        add(sums, box, q_at + at + column, q_apart,
            static_cast<int>(left < kPiece ? left : kPiece));
      }
      ATOLL_UNROLL
      for (int k = 0; k < kAtOnce; ++k) {
        double sum = 0;
        for (int c = 0; c < kDotColumns; ++c) {
          const double next = shuffle(sums[k], own * kDotColumns + c);
          sum += next;
        }
        if (column != 0 || own >= rows || first + k >= end) continue;
        for (std::int64_t j = whole; j < cols; ++j) {
          sum += static_cast<double>(x.m.load(m_at + own * cols + j)) *
                 static_cast<double>(x.q.load(q_at + q_apart[k] + j));
        }
        x.p.store(x.at(kFactorP) + (first + k) * all_rows + row + own, static_cast<float>(sum));
      }
    }
  }
};

/// Q^T = P^T M, or 0. A sum goes along the rows in their order, so that few threads have one: a
/// lane for each of eight columns of four of the r sums. Other warps of a block of eight columns
/// copy pieces of M and P into shared memory, well before they are added.
struct ProjectColumns {
  static constexpr const char* kName = "project_columns";
  static constexpr int kMaxThreads = 256;
  static constexpr int kCopying = kMaxThreads / 2;  // threads
  static constexpr int kColumns = 8;
  static constexpr int kAtOnce = (kMaxThreads - kCopying) / kColumns;  // sums for a reading of M
  static constexpr int kRows = 256;
  static constexpr int kStages = 4;
  static constexpr int kStride = kRows + 4;  // columns begin in different banks
  static constexpr int kStep = 16;           // rows that are loaded before others are added
  FactorOperands x;
  Global<const std::int32_t> flags;

  /// Columns of M and of P in shared memory.
  ATOLL_HOST_AND_DEVICE static constexpr int most_columns(std::int64_t rank) {
    return kColumns + static_cast<int>(rank < kAtOnce ? rank : kAtOnce);
  }
  static constexpr int shared_bytes(std::int64_t rank = 4) {
    return kStages * most_columns(rank) * kStride * 4;
  }

  /// What a block reads.
  struct Part {
    std::int64_t m_at, p_at;    // the first elements
    std::int64_t rows, cols;    // of the matrix
    std::int64_t end;           // rows that are summed
    int num_columns, num_sums;  // of the block
  };

  ATOLL_DEVICE Shared<float> box(int stage) const {
    const int columns = most_columns(x.rank);
    return shared_memory<float>(stage * columns * kStride * 4, columns * kStride);
  }
  /// Begins to copy rows [row, row + kRows), zeroes behind the last.
  ATOLL_DEVICE void copy(const Part& part, std::int64_t row, int stage) const {
    const std::int64_t end = part.end;
    if (row < end) {
      const auto to = box(stage);
      const int own = thread() - (kMaxThreads - kCopying), column = own % kColumns;
      ATOLL_NO_UNROLL
      for (int i = 0; i < kRows * kColumns / kCopying; ++i) {
        const int r = i * (kCopying / kColumns) + own / kColumns;
        const bool is_there = row + r < end && column < part.num_columns;
        copy_async<1>(to, column * kStride + r, x.m,
                      is_there ? part.m_at + (row + r) * part.cols + column : 0, is_there);
      }
      ATOLL_NO_UNROLL
      for (int k = 0; k < part.num_sums; ++k) {
        ATOLL_NO_UNROLL
        for (int r = own; r < kRows; r += kCopying) {
          const bool is_there = row + r < end;
          copy_async<1>(to, (kColumns + k) * kStride + r, x.p,
                        is_there ? part.p_at + k * part.rows + row + r : 0, is_there);
        }
      }
    }
    commit_copies();
  }
  /// Adds `count` rows, or a few zeroes more, to the sum of this lane.
  ATOLL_DEVICE float add(float sum, const Shared<float>& from, int m_at, int p_at,
                         int count) const {
    constexpr int kPacks = kStep / 4;
    Pack<float, 4> m[kPacks], p[kPacks];
    const auto load = [&](int row) {
      ATOLL_UNROLL
      for (int i = 0; i < kPacks; ++i) {
        m[i] = from.load<4>(m_at + row + 4 * i);
        p[i] = from.load<4>(p_at + row + 4 * i);
      }
    };
    load(0);
    for (int row = 0; row < count; row += kStep) {
      float products[kStep];
      ATOLL_UNROLL
      for (int i = 0; i < kStep; ++i) products[i] = p[i / 4][i % 4] * m[i / 4][i % 4];
      if (row + kStep < count) load(row + kStep);
      ATOLL_UNROLL
      for (int i = 0; i < kStep; ++i) sum += products[i];
    }
    return sum;
  }
  ATOLL_DEVICE void operator()() const {
    const std::int64_t cols = x.at(kFactorCols), rows = x.at(kFactorRows);
    const std::int64_t column = std::int64_t{block_x()} * kColumns;
    if (column >= cols) return;
    const std::int64_t left = cols - column;
    Part part = {.m_at = x.at(kFactorBegin) - x.m_first + column,
                 .rows = rows,
                 .cols = cols,
                 .end = flags.load(block_y()) != 0 ? rows : 0,
                 .num_columns = static_cast<int>(left < kColumns ? left : kColumns)};
    const int own = thread() % kColumns, k = thread() / kColumns;
    for (std::int64_t first = 0; first < x.rank; first += kAtOnce) {
      const std::int64_t sums_left = x.rank - first;
      part.p_at = x.at(kFactorP) + first * rows;
      part.num_sums = static_cast<int>(sums_left < kAtOnce ? sums_left : kAtOnce);
      // A lane without a sum of its own adds to the first.
      const int p_at = (kColumns + (k < part.num_sums ? k : 0)) * kStride;
      const bool is_idle = k / (kWarp / kColumns) * (kWarp / kColumns) >= part.num_sums;
      const float sum = sum_of(part, own * kStride, p_at, is_idle);
      if (own < part.num_columns && k < part.num_sums) {
        x.q.store(x.at(kFactorQ) + (first + k) * cols + column + own, sum);
      }
      sync_block();  // what is copied next was read
    }
  }
  ATOLL_DEVICE float sum_of(const Part& part, int m_at, int p_at, bool is_idle) const {
    float sum = 0;
    const bool copies = thread() >= kMaxThreads - kCopying;
    ATOLL_NO_UNROLL
    for (int stage = 0; stage < kStages - 1 && copies; ++stage) copy(part, stage * kRows, stage);
    const std::int64_t end = part.end;
    int stage = 0;
    for (std::int64_t row = 0; row < end; row += kRows) {
      wait_copies<kStages - 2>();
      sync_block();
      const int before = (stage + kStages - 1) % kStages;
      if (copies) copy(part, row + (kStages - 1) * kRows, before);
      const std::int64_t left = end - row;
      if (!is_idle) {
        sum = add(sum, box(stage), m_at, p_at, static_cast<int>(left < kRows ? left : kRows));
      }
      stage = (stage + 1) % kStages;
    }
    return sum;
  }
};

/// residual = M - P Q^T, rounded: a warp for each 256 elements.
struct OweRest {
  static constexpr const char* kName = "keep_residual";
  static constexpr int kMaxThreads = 256;
  FactorOperands x;
  Global<const std::int32_t> flags;

  /// Takes elements of P Q^T away, those of the matrix's rows and columns.
  ATOLL_DEVICE void subtract(float (&left)[kCodeSlots], const int (&row)[kCodeSlots],
                             const int (&col)[kCodeSlots]) const {
    const std::int64_t rows = x.at(kFactorRows), cols = x.at(kFactorCols);
    std::int64_t p_at = x.at(kFactorP), q_at = x.at(kFactorQ);
    float product[kCodeSlots] = {};
    ATOLL_NO_UNROLL
    for (std::int64_t k = 0; k < x.rank; ++k, p_at += rows, q_at += cols) {
      ATOLL_UNROLL
      for (int slot = 0; slot < kCodeSlots; ++slot) {
        product[slot] += x.p.load(p_at + row[slot]) * x.q.load(q_at + col[slot]);
      }
    }
    ATOLL_UNROLL
    for (int slot = 0; slot < kCodeSlots; ++slot) left[slot] -= product[slot];
  }
  ATOLL_DEVICE void operator()() const {
    const std::int64_t cols = x.at(kFactorCols), end = x.at(kFactorRows) * cols;
    const std::int64_t block = std::int64_t{block_x()} * (num_threads() / kWarp) + warp();
    const std::int64_t first = block * kCodeBlock;
    if (flags.load(block_y()) == 0 || first >= end) return;
    const std::int64_t m_at = x.at(kFactorBegin) - x.m_first + first + lane();
    const std::int64_t residual_at = x.at(kFactorResidual) + first + lane();
    const int size = static_cast<int>(end - first < kCodeBlock ? end - first : kCodeBlock);
    float left[kCodeSlots];
    int row[kCodeSlots], col[kCodeSlots];
    auto own_row = static_cast<int>(first / cols);
    auto own_col = static_cast<int>(first - own_row * cols) + lane();
    ATOLL_UNROLL
    for (int slot = 0; slot < kCodeSlots; ++slot) {
      const bool is_there = slot * kWarp + lane() < size;
      left[slot] = is_there ? x.m.load(m_at + slot * kWarp) : 0.0F;
      for (; own_col >= cols; own_col -= static_cast<int>(cols)) ++own_row;
      row[slot] = is_there ? own_row : 0;
      col[slot] = is_there ? own_col : 0;
      own_col += kWarp;
    }
    subtract(left, row, col);
    std::int32_t largest = 0;
    ATOLL_UNROLL
    for (int slot = 0; slot < kCodeSlots; ++slot) {
      const bool is_there = slot * kWarp + lane() < size;
      const std::int32_t bits = is_there ? magnitude_bits(left[slot]) : 0;
      largest = bits > largest ? bits : largest;
    }
    largest = largest_of_warp(largest);
    const bool is_rounded = largest < kCodeLimitBits;
    const float offset = is_rounded ? grid_offset(largest) : 0.0F;
    ATOLL_UNROLL
    for (int slot = 0; slot < kCodeSlots; ++slot) {
      const float rounded = is_rounded ? (left[slot] + offset) - offset : left[slot];
      if (slot * kWarp + lane() < size) x.residual.store(residual_at + slot * kWarp, rounded);
    }
  }
};

/// M = P Q^T, or NaN: a warp for four rows of 128 columns, of which a lane has four that are 32
/// apart; block_x is the tile of a matrix.
struct RestoreProduct {
  static constexpr const char* kName = "restore_product";
  static constexpr int kMaxThreads = 256;
  static constexpr int kRows = 4;
  static constexpr int kColumns = 4;
  static constexpr int kTileRows = kMaxThreads / kWarp * kRows;
  static constexpr int kTileColumns = kColumns * kWarp;
  FactorOperands x;
  Global<const std::int32_t> flags;

  /// Tiles of a matrix of at most so many rows, columns and elements.
  static constexpr std::int64_t most_tiles(std::int64_t rows, std::int64_t cols,
                                           std::int64_t elements) {
    return elements / (kTileRows * kTileColumns) + rows / kTileRows + cols / kTileColumns + 1;
  }
  ATOLL_DEVICE void operator()() const {
    const std::int64_t rows = x.at(kFactorRows), cols = x.at(kFactorCols);
    const std::int64_t across = (cols + kTileColumns - 1) / kTileColumns;
    const std::int64_t row = block_x() / across * kTileRows + warp() * kRows;
    const std::int64_t col = block_x() % across * kTileColumns + lane();
    if (row >= rows || col >= cols) return;
    std::int64_t p_at = x.at(kFactorP) + row, q_at = x.at(kFactorQ) + col;
    // What is outside is the last of what is not.
    int r_at[kRows], c_at[kColumns];
    ATOLL_UNROLL
    for (int r = 0; r < kRows; ++r) r_at[r] = row + r < rows ? r : static_cast<int>(rows - 1 - row);
    ATOLL_UNROLL
    for (int c = 0; c < kColumns; ++c) c_at[c] = col + c * kWarp < cols ? c * kWarp : 0;
    float sums[kRows][kColumns] = {};
    for (std::int64_t k = 0; k < x.rank; ++k, p_at += rows, q_at += cols) {
      float p[kRows], q[kColumns];
      ATOLL_UNROLL
      for (int r = 0; r < kRows; ++r) p[r] = x.p.load(p_at + r_at[r]);
      ATOLL_UNROLL
      for (int c = 0; c < kColumns; ++c) q[c] = x.q.load(q_at + c_at[c]);
      ATOLL_UNROLL
      for (int r = 0; r < kRows; ++r) {
        ATOLL_UNROLL
        for (int c = 0; c < kColumns; ++c) sums[r][c] += p[r] * q[c];
      }
    }
    const bool is_good = flags.load(block_y()) != 0;
    const std::int64_t m_at = x.at(kFactorBegin) - x.m_first + row * cols + col;
    ATOLL_UNROLL
    for (int r = 0; r < kRows; ++r) {
      ATOLL_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        if (row + r >= rows || col + c * kWarp >= cols) continue;
        x.m.store(m_at + r * cols + c * kWarp,
                  is_good ? sums[r][c] : std::bit_cast<float>(kCodeNan));
      }
    }
  }
};

/// See ops/codes/factors.h: a block for each matrix.
struct OrthogonaliseKernel {
  static constexpr const char* kName = "orthogonalise";
  static constexpr int kMaxThreads = 256;
  static constexpr int kWarps = kMaxThreads / kWarp;
  static constexpr int kColumnBytes = kDotColumns * static_cast<int>(sizeof(double));
  static constexpr int kSharedBytes =
      kColumnBytes + kWarps * static_cast<int>(sizeof(std::int32_t));
  Global<const std::int64_t> matrices;
  Global<const float> from;
  Global<float> to;                  // or none
  Global<const std::int32_t> given;  // or none
  Global<std::int32_t> made;
  std::int64_t rank;
  std::int32_t at_column, n_column;

  ATOLL_DEVICE bool are_finite(std::int64_t at, std::int64_t count) const {
    const auto found = shared_memory<std::int32_t>(kColumnBytes, kWarps);
    const std::int64_t end = count;
    bool is_bad = false;
    for (std::int64_t i = thread(); i < end; i += num_threads()) {
      is_bad = is_bad || magnitude_bits(from.load(at + i)) >= 0x7f800000;
    }
    is_bad = any_lane(is_bad);
    if (lane() == 0) found.store(warp(), is_bad ? 1 : 0);
    sync_block();
    std::int32_t bad = 0;
    for (int i = 0; i < kWarps; ++i) bad += found.load(i);
    return bad == 0;
  }
  /// The dot product of two vectors in `to`. All threads get it, and have met before.
  ATOLL_DEVICE double dot(std::int64_t a, std::int64_t b, std::int64_t n) const {
    const auto columns = shared_memory<double>(0, kDotColumns);
    const std::int64_t end = n / kDotColumns * kDotColumns;
    if (thread() < kDotColumns) {
      double column = 0;
      for (std::int64_t i = thread(); i < end; i += kDotColumns) {
        column += static_cast<double>(to.load(a + i)) * static_cast<double>(to.load(b + i));
      }
      columns.store(thread(), column);
    }
    sync_block();
    double sum = 0;
    for (int column = 0; column < kDotColumns; ++column) sum += columns.load(column);
    for (std::int64_t i = end; i < n; ++i) {
      sum += static_cast<double>(to.load(a + i)) * static_cast<double>(to.load(b + i));
    }
    return sum;
  }
  ATOLL_DEVICE void subtract(std::int64_t own, std::int64_t other, float along,
                             std::int64_t n) const {
    const std::int64_t end = n;
    for (std::int64_t i = thread(); i < end; i += num_threads()) {
      to.store(own + i, to.load(own + i) - along * to.load(other + i));
    }
  }
  ATOLL_DEVICE void divide(std::int64_t own, float length, std::int64_t n) const {
    const std::int64_t end = n;
    for (std::int64_t i = thread(); i < end; i += num_threads()) {
      to.store(own + i, to.load(own + i) / (length + 1e-20F));  // of zeros it stays one
    }
  }
  ATOLL_DEVICE void operator()() const {
    const std::int64_t row = std::int64_t{block_x()} * kFactorColumns;
    const std::int64_t at = matrices.load(row + at_column), n = matrices.load(row + n_column);
    const bool was_finite = given.size == 0 || given.load(block_x()) != 0;
    const bool is_finite = are_finite(at, rank * n) && was_finite;
    if (thread() == 0) made.store(block_x(), is_finite ? 1 : 0);
    if (!is_finite || to.size == 0) return;
    if (from.data != to.data) {
      const std::int64_t end = rank * n;
      for (std::int64_t i = thread(); i < end; i += num_threads())
        to.store(at + i, from.load(at + i));
    }
    for (std::int64_t k = 0; k < rank; ++k) {
      const std::int64_t own = at + k * n;
      for (std::int64_t before = 0; before < k; ++before) {
        sync_block();
        const double along = dot(own, at + before * n, n);
        sync_block();
        subtract(own, at + before * n, static_cast<float>(along), n);
      }
      sync_block();
      const double square = dot(own, own, n);
      sync_block();
      divide(own, static_cast<float>(sqrt(square)), n);
    }
  }
};

using FactorsKernels =
    KernelList<ProjectRows, ProjectColumns, OweRest, RestoreProduct, OrthogonaliseKernel>;

}  // namespace atl::ops::cuda
