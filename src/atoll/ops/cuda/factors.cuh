#pragma once

// Factors of low rank: a row of blocks for each matrix. Operations are those of ops/ref in the same
// order, on every GPU, so that ranks send a CPU's bytes; tensor cores would have others.

#include "atoll/ops/cuda/codes.cuh"
#include "atoll/ops/factors_layout.h"

namespace atl::ops::cuda {

/// Matrices and their factors; see ops/factors.h.
struct FactorOperands {
  Global<const std::int64_t> matrices;
  Global<float> m, p, q, owed;
  std::int64_t rank, m_first;

  ATOLL_DEVICE std::int64_t at(int column) const {
    return matrices.load(std::int64_t{block_y()} * kFactorColumns + column);
  }
};

constexpr int kDotColumns = 8;

/// M += owed, and P^T = Q^T M^T: a warp for each row, and in it eight columns of four of the r
/// sums.
struct ProjectRows {
  static constexpr const char* kName = "project_rows";
  static constexpr int kMaxThreads = 256;
  FactorOperands x;

  ATOLL_DEVICE void add_owed(std::int64_t m_at, std::int64_t owed_at, std::int64_t cols) const {
    const std::int64_t end = cols;
    for (std::int64_t j = lane(); j < end; j += kWarp) {
      x.m.store(m_at + j, x.m.load(m_at + j) + x.owed.load(owed_at + j));
    }
  }
  ATOLL_DEVICE double dot(std::int64_t a, std::int64_t b, std::int64_t n) const {
    const std::int64_t end = n / kDotColumns * kDotColumns;
    double column = 0;
    for (std::int64_t j = lane() % kDotColumns; j < end; j += kDotColumns) {
      column += static_cast<double>(x.m.load(a + j)) * static_cast<double>(x.q.load(b + j));
    }
    double sum = 0;
    for (int c = 0; c < kDotColumns; ++c) {
      const double next = shuffle(column, lane() / kDotColumns * kDotColumns + c);
      sum += next;
    }
    for (std::int64_t j = end; j < n; ++j) {
      sum += static_cast<double>(x.m.load(a + j)) * static_cast<double>(x.q.load(b + j));
    }
    return sum;
  }
  ATOLL_DEVICE void operator()() const {
    const std::int64_t rows = x.at(kFactorRows), cols = x.at(kFactorCols);
    const std::int64_t row = std::int64_t{block_x()} * (num_threads() / kWarp) + warp();
    if (row >= rows) return;
    const std::int64_t m_at = x.at(kFactorBegin) - x.m_first + row * cols;
    if (x.owed.size > 0) add_owed(m_at, x.at(kFactorOwed) + row * cols, cols);
    sync_warp();
    const std::int64_t p_at = x.at(kFactorP) + row, q_at = x.at(kFactorQ);
    for (std::int64_t first = 0; first < x.rank; first += kWarp / kDotColumns) {
      const std::int64_t k = first + lane() / kDotColumns, end = x.rank;
      const double sum = dot(m_at, q_at + (k < end ? k : end - 1) * cols, cols);
      if (lane() % kDotColumns == 0 && k < end) x.p.store(p_at + k * rows, static_cast<float>(sum));
    }
  }
};

/// Q^T = P^T M, or 0: a thread for each column.
struct ProjectColumns {
  static constexpr const char* kName = "project_columns";
  static constexpr int kMaxThreads = 256;
  static constexpr int kAtOnce = 4;  // of the r sums, for one reading of M
  FactorOperands x;
  Global<const std::int32_t> flags;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t rows = x.at(kFactorRows), cols = x.at(kFactorCols);
    const std::int64_t j = std::int64_t{block_x()} * num_threads() + thread();
    if (j >= cols) return;
    const std::int64_t m_at = x.at(kFactorBegin) - x.m_first + j;
    const std::int64_t p_at = x.at(kFactorP), q_at = x.at(kFactorQ) + j;
    const std::int64_t last = flags.load(block_y()) != 0 ? rows : 0, end = x.rank;
    for (std::int64_t first = 0; first < x.rank; first += kAtOnce) {
      float sums[kAtOnce] = {};
      for (std::int64_t i = 0; i < last; ++i) {
        const float value = x.m.load(m_at + i * cols);
        ATOLL_UNROLL
        for (int k = 0; k < kAtOnce; ++k) {
          const std::int64_t row = first + k < end ? first + k : end - 1;
          sums[k] += x.p.load(p_at + row * rows + i) * value;
        }
      }
      ATOLL_UNROLL
      for (int k = 0; k < kAtOnce; ++k) {
        if (first + k < end) x.q.store(q_at + (first + k) * cols, sums[k]);
      }
    }
  }
};

/// Element i of P Q^T.
ATOLL_DEVICE float product_at(const FactorOperands& x, std::int64_t i) {
  const std::int64_t rows = x.at(kFactorRows), cols = x.at(kFactorCols);
  const std::int64_t p_at = x.at(kFactorP) + i / cols, q_at = x.at(kFactorQ) + i % cols;
  float sum = 0;
  for (std::int64_t k = 0; k < x.rank; ++k) {
    sum += x.p.load(p_at + k * rows) * x.q.load(q_at + k * cols);
  }
  return sum;
}

/// owed = M - P Q^T, rounded: a warp for each 256 elements.
struct OweRest {
  static constexpr const char* kName = "owe_rest";
  static constexpr int kMaxThreads = 256;
  FactorOperands x;
  Global<const std::int32_t> flags;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t end = x.at(kFactorRows) * x.at(kFactorCols);
    const std::int64_t block = std::int64_t{block_x()} * (num_threads() / kWarp) + warp();
    const std::int64_t first = block * kCodeBlock + lane();
    if (flags.load(block_y()) == 0) return;
    const std::int64_t m_at = x.at(kFactorBegin) - x.m_first, owed_at = x.at(kFactorOwed);
    float left[kCodeSlots];
    std::int32_t largest = 0;
    ATOLL_UNROLL
    for (int slot = 0; slot < kCodeSlots; ++slot) {
      const std::int64_t i = first + slot * kWarp;
      left[slot] = 0;
      if (i < end) left[slot] = x.m.load(m_at + i) - product_at(x, i);
      const std::int32_t bits = magnitude_bits(left[slot]);
      largest = bits > largest ? bits : largest;
    }
    largest = largest_of_warp(largest);
    const bool is_rounded = largest < kCodeLimitBits;
    const float offset = is_rounded ? grid_offset(largest) : 0.0F;
    ATOLL_UNROLL
    for (int slot = 0; slot < kCodeSlots; ++slot) {
      const std::int64_t i = first + slot * kWarp;
      const float rounded = is_rounded ? (left[slot] + offset) - offset : left[slot];
      if (i < end) x.owed.store(owed_at + i, rounded);
    }
  }
};

/// M = P Q^T, or NaN.
struct RestoreProduct {
  static constexpr const char* kName = "restore_product";
  static constexpr int kMaxThreads = 256;
  FactorOperands x;
  Global<const std::int32_t> flags;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t end = x.at(kFactorRows) * x.at(kFactorCols);
    const std::int64_t i = std::int64_t{block_x()} * num_threads() + thread();
    if (i >= end) return;
    const float value =
        flags.load(block_y()) != 0 ? product_at(x, i) : std::bit_cast<float>(kCodeNan);
    x.m.store(x.at(kFactorBegin) - x.m_first + i, value);
  }
};

/// See ops/factors.h: a block for each matrix.
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
