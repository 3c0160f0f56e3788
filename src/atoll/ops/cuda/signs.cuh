#pragma once

// Momenta as signs: a block of threads for each piece. Operations are those of ops/ref in the same
// order; the sum of a piece's magnitudes is in double, over eight columns, as on a CPU.

#include "atoll/ops/cuda/codes.cuh"
#include "atoll/ops/signs_layout.h"

namespace atl::ops::cuda {

/// A row of the table of pieces.
struct SignRow {
  Global<const std::int64_t> pieces;
  std::int64_t at;

  ATOLL_DEVICE std::int64_t operator[](int column) const { return pieces.load(at + column); }
};
ATOLL_DEVICE SignRow sign_row(const Global<const std::int64_t>& pieces) {
  return {pieces, std::int64_t{block_x()} * kSignColumns};
}

/// The sign of element i of a code times its scale.
ATOLL_DEVICE float sign_of(const Global<const std::uint8_t>& codes, std::int64_t byte,
                           std::int64_t i, float scale) {
  const std::uint32_t bits = codes.load(byte + 4 + i / 8);
  return (bits >> (i % 8) & 1) != 0 ? -scale : scale;
}
ATOLL_DEVICE Global<const std::uint8_t> reading(const Global<std::uint8_t>& codes) {
  return {codes.data, codes.size};
}

constexpr int kSignThreads = 256;
constexpr int kSumColumns = 8;
constexpr int kSignWarps = kSignThreads / kWarp;
/// Shared memory of EncodeSignsKernel: momenta in their units, sums of columns, counts of warps.
constexpr int kColumnsAt = static_cast<int>(kSignPiece * sizeof(float));
constexpr int kCountsAt = kColumnsAt + kSumColumns * static_cast<int>(sizeof(double));
constexpr int kSignShared = kCountsAt + kSignWarps * static_cast<int>(sizeof(std::int32_t));

/// Values of EncodeSigns::Adds.
enum : int { kAddsNothing, kAddsGradients, kAddsMoves, kAddsRanks };

/// See ops/signs.h.
template <int kAdds>
struct EncodeSignsKernel {
  static constexpr const char* kName = "encode_signs";
  static constexpr int kMaxThreads = kSignThreads;
  static constexpr int shared_bytes() { return kSignShared; }
  Global<const std::int64_t> pieces;
  Global<std::uint8_t> codes;
  Global<const float> v;
  Global<float> owed;
  Global<const float> grads, values, anchor, m;
  Global<const std::uint8_t> sent;
  SignUnits units;
  std::int32_t v_column, owed_column, num_sources;
  std::int64_t byte_first, source_bytes;
  float owed_share, beta1, rest, per_moved, share;

  ATOLL_DEVICE float added(const SignRow& row, std::int64_t i, float unit, bool is_masked,
                           float old_scale) const {
    const std::int64_t e = row[kSignBegin] + i;
    if constexpr (kAdds == kAddsGradients) {
      const float sign = sign_of(reading(codes), row[kSignByte], i, old_scale);
      return beta1 * (is_masked ? 0.0F : sign * unit) + rest * grads.load(e);
    } else if constexpr (kAdds == kAddsMoves) {
      if (per_moved == 0) return m.load(e);
      return (anchor.load(e) - values.load(e)) * per_moved * unit;
    } else {
      float sum = 0;
      for (std::int64_t source = 0; source < num_sources; ++source) {
        const std::int64_t byte = source * source_bytes + row[kSignByte] - byte_first;
        sum += sign_of(sent, byte, i, load_float(sent, byte));
      }
      return sum * share * unit;
    }
  }
  /// Writes momenta, and shares them in their units. Returns how many of a thread's are not masked.
  ATOLL_DEVICE int add(const SignRow& row, const Shared<float>& scaled) const {
    const std::int64_t v_at = row[v_column], owed_at = row[owed_column];
    const int end = static_cast<int>(row[kSignCount]);
    const float old_scale =
        kAdds == kAddsGradients ? load_float(reading(codes), row[kSignByte]) : 0.0F;
    int unmasked = 0;
    for (int i = thread(); i < end; i += num_threads()) {
      const float v_i = v.load(v_at + i);
      const float unit = units.of(v_i);
      float momentum = owed.load(owed_at + i);
      if constexpr (kAdds != kAddsNothing) {
        momentum = momentum * owed_share + added(row, i, unit, v_i == 0, old_scale);
        owed.store(owed_at + i, momentum);
      }
      scaled.store(i, v_i == 0 ? 0.0F : momentum / unit);
      unmasked += v_i == 0 ? 0 : 1;
    }
    return unmasked;
  }
  /// The mean magnitude of what is not masked; all threads get it.
  ATOLL_DEVICE float mean_of(const Shared<float>& scaled, int end, int unmasked) const {
    const auto columns = shared_memory<double>(kColumnsAt, kSumColumns);
    const auto counts = shared_memory<std::int32_t>(kCountsAt, kSignWarps);
    for (int mask = kWarp / 2; mask > 0; mask /= 2) unmasked += shuffle_xor(unmasked, mask);
    if (lane() == 0) counts.store(warp(), unmasked);
    sync_block();
    const int whole = end / kSumColumns * kSumColumns;
    if (thread() < kSumColumns) {
      double sum = 0;
      for (int i = thread(); i < whole; i += kSumColumns) {
        sum += static_cast<double>(fabsf(scaled.load(i)));
      }
      columns.store(thread(), sum);
    }
    sync_block();
    double sum = 0;
    for (int column = 0; column < kSumColumns; ++column) sum += columns.load(column);
    for (int i = whole; i < end; ++i) sum += static_cast<double>(fabsf(scaled.load(i)));
    int count = 0;
    for (int i = 0; i < kSignWarps; ++i) count += counts.load(i);
    return count == 0 ? 0.0F : static_cast<float>(sum / static_cast<double>(count));
  }
  /// Writes the signs of 256 momenta from `at` on, and what they do not say.
  ATOLL_DEVICE void encode(const SignRow& row, const Shared<float>& scaled, int at,
                           float scale) const {
    const std::int64_t v_at = row[v_column] + at, owed_at = row[owed_column] + at;
    const int size = static_cast<int>(row[kSignCount]) - at;
    const std::int64_t byte = row[kSignByte] + 4 + at / 8;
    float left[kCodeSlots];
    std::int32_t largest = 0;
    ATOLL_UNROLL
    for (int slot = 0; slot < kCodeSlots; ++slot) {
      const int i = slot * kWarp + lane();
      bool is_negative = false;
      left[slot] = 0;
      if (i < size) {
        is_negative = std::bit_cast<std::uint32_t>(scaled.load(at + i)) >> 31 != 0;
        const float v_i = v.load(v_at + i);
        const float said = (is_negative ? -scale : scale) * units.of(v_i);
        left[slot] = v_i == 0 ? 0.0F : owed.load(owed_at + i) - said;
      }
      const std::uint32_t bits = ballot(is_negative);
      const int end = (size + 7) / 8, to = slot * kWarp / 8 + lane();
      if (lane() < 4 && to < end)
        codes.store(byte + to, static_cast<std::uint8_t>(bits >> (8 * lane())));
      const std::int32_t magnitude = magnitude_bits(left[slot]);
      largest = magnitude > largest ? magnitude : largest;
    }
    largest = largest_of_warp(largest);
    const bool is_rounded = largest < kCodeLimitBits;
    const float offset = is_rounded ? grid_offset(largest) : 0.0F;
    ATOLL_UNROLL
    for (int slot = 0; slot < kCodeSlots; ++slot) {
      const int i = slot * kWarp + lane();
      if (i < size)
        owed.store(owed_at + i, is_rounded ? (left[slot] + offset) - offset : left[slot]);
    }
  }
  ATOLL_DEVICE void operator()() const {
    const SignRow row = sign_row(pieces);
    const auto scaled = shared_memory<float>(0, static_cast<int>(kSignPiece));
    const int end = static_cast<int>(row[kSignCount]);
    const int unmasked = add(row, scaled);
    const float scale = mean_of(scaled, end, unmasked);
    if (warp() == 0) store_float(codes, row[kSignByte], scale);
    constexpr int kStretch = static_cast<int>(kCodeBlock);
    for (int stretch = warp(); stretch * kStretch < end; stretch += kSignWarps) {
      encode(row, scaled, stretch * kStretch, scale);
    }
  }
};

/// See ops/signs.h.
template <bool kAnchors>
struct ApplySignsKernel {
  static constexpr const char* kName = "apply_signs";
  static constexpr int kMaxThreads = kSignThreads;
  Global<const std::int64_t> pieces;
  Global<const std::uint8_t> codes;
  Global<const float> v;
  Global<float> m;  // or none
  Global<float> x;
  Global<const float> anchor;
  SignUnits units;
  std::int32_t v_column, m_column;
  float step_size, decay;

  ATOLL_DEVICE void operator()() const {
    const SignRow row = sign_row(pieces);
    const std::int64_t begin = row[kSignBegin], v_at = row[v_column], byte = row[kSignByte];
    const std::int64_t m_at = m.size > 0 ? row[m_column] : -1;
    const float scale = load_float(codes, byte);
    const float decayed = row[kSignDecay] != 0 ? decay : 0.0F;
    const int end = static_cast<int>(row[kSignCount]);
    for (int i = thread(); i < end; i += num_threads()) {
      const float v_i = v.load(v_at + i);
      const float sign = v_i == 0 ? 0.0F : sign_of(codes, byte, i, scale);
      if (m_at >= 0) m.store(m_at + i, sign * units.of(v_i));
      if constexpr (kAnchors) {
        const float from = anchor.load(begin + i);
        x.store(begin + i, from - step_size * sign - decayed * from);
      } else {
        const float from = x.load(begin + i);
        x.store(begin + i, from - (step_size * sign + decayed * from));
      }
    }
  }
};

/// See ops/signs.h.
template <bool kSums>
struct ZeroOneKernel {
  static constexpr const char* kName = kSums ? "zero_one_dense" : "zero_one_local";
  static constexpr int kMaxThreads = kSignThreads;
  Global<const std::int64_t> pieces;
  Global<float> x;
  Global<const float> grads;
  Global<float> m, v, anchor;
  SignUnits units;
  std::int32_t is_first;
  float beta1, beta2, rest1, rest2, grad_scale, step_size, decay;

  ATOLL_DEVICE void step(std::int64_t i, float decayed) const {
    const float from = x.load(i);
    if constexpr (kSums) {
      const float g = grad_scale * grads.load(i);
      const float m_i = beta1 * m.load(i) + rest1 * g;
      const float v_i = beta2 * v.load(i) + rest2 * g * g;
      m.store(i, m_i);
      v.store(i, v_i);
      const float along = v_i == 0 ? 0.0F : step_size * m_i / units.of(v_i);
      x.store(i, from - (along + decayed * from));
    } else {
      if (is_first != 0) anchor.store(i, from);
      const float m_i = beta1 * m.load(i) + rest1 * grads.load(i);
      const float v_i = v.load(i);
      m.store(i, m_i);
      if (v_i != 0) x.store(i, from - step_size * m_i / units.of(v_i));
    }
  }
  ATOLL_DEVICE void operator()() const {
    const SignRow row = sign_row(pieces);
    const std::int64_t first = row[kSignBegin];
    const float decayed = row[kSignDecay] != 0 ? decay : 0.0F;
    const int end = static_cast<int>(row[kSignCount]);
    for (int i = thread(); i < end; i += num_threads()) step(first + i, decayed);
  }
};

/// to += scale from.
struct AddScaledKernel {
  static constexpr const char* kName = "add_scaled";
  static constexpr int kMaxThreads = kSignThreads;
  Global<const std::int64_t> pieces;
  Global<const float> from;
  Global<float> to;
  std::int32_t from_column, to_column;
  float scale;

  ATOLL_DEVICE void operator()() const {
    const SignRow row = sign_row(pieces);
    const std::int64_t from_at = row[from_column], to_at = row[to_column];
    const int end = static_cast<int>(row[kSignCount]);
    for (int i = thread(); i < end; i += num_threads()) {
      to.store(to_at + i, to.load(to_at + i) + scale * from.load(from_at + i));
    }
  }
};

/// Sums of some rows of `numbers` elements, each times a sign; a thread for each number of a block
/// of rows.
struct SketchPartials {
  static constexpr const char* kName = "sketch_partials";
  static constexpr int kMaxThreads = 256;
  Global<const float> x;
  Global<float> partials;  // (blocks of rows, numbers)
  std::int64_t numbers, rows_apart;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t at = std::int64_t{block_x()} * num_threads() + thread();
    const std::int64_t k = at % numbers, first = at / numbers * rows_apart;
    if (at >= partials.size) return;
    float sum = 0;
    for (std::int64_t row = first; row < first + rows_apart; ++row) {
      const std::int64_t i = row * numbers + k;
      if (i >= x.size) break;
      const std::uint64_t signs = sketch_signs(static_cast<std::uint64_t>(i / 64 * 64));
      const float value = x.load(i);
      sum += (signs >> (i % 64) & 1U) != 0 ? -value : value;
    }
    partials.store(at, sum);
  }
};

struct SketchSums {
  static constexpr const char* kName = "sketch_sums";
  static constexpr int kMaxThreads = 256;
  Global<const float> partials;
  Global<float> sums;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t k = std::int64_t{block_x()} * num_threads() + thread();
    if (k >= sums.size) return;
    float sum = 0;
    for (std::int64_t i = k; i < partials.size; i += sums.size) sum += partials.load(i);
    sums.store(k, sum);
  }
};

using SignsKernels =
    KernelList<EncodeSignsKernel<kAddsNothing>, EncodeSignsKernel<kAddsGradients>,
               EncodeSignsKernel<kAddsMoves>, EncodeSignsKernel<kAddsRanks>,
               ApplySignsKernel<false>, ApplySignsKernel<true>, ZeroOneKernel<false>,
               ZeroOneKernel<true>, AddScaledKernel, SketchPartials, SketchSums>;

}  // namespace atl::ops::cuda
