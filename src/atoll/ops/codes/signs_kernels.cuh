#pragma once

// Momenta as signs: a block of threads for each piece. Operations are those of ops/ref in the same
// order; the sum of a piece's magnitudes is in double, over eight columns, as on a CPU.

#include "atoll/ops/codes/kernels.cuh"
#include "atoll/ops/codes/signs_layout.h"

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
/// Shared memory of EncodeSignsKernel: momenta, and in their units; sums of columns, counts of
/// warps.
constexpr int kMomentaBytes = static_cast<int>(kSignPiece * sizeof(float));
constexpr int kColumnsAt = 2 * kMomentaBytes;
constexpr int kCountsAt = kColumnsAt + kSumColumns * static_cast<int>(sizeof(double));
constexpr int kSignShared = kCountsAt + kSignWarps * static_cast<int>(sizeof(std::int32_t));

/// Values of EncodeSigns::Adds.
enum : int { kAddsNothing, kAddsGradients, kAddsMoves, kAddsRanks };

/// See ops/codes/signs.h. A warp has stretches of 256 elements, and keeps their second moments.
template <int kAdds>
struct EncodeSignsKernel {
  static constexpr const char* kName = "encode_signs";
  static constexpr int kMaxThreads = kSignThreads;
  static constexpr int shared_bytes() { return kSignShared; }
  Global<const std::int64_t> pieces;
  Global<std::uint8_t> codes;
  Global<const float> v;
  Global<float> residual;
  Global<const float> grads, values, anchor, m;
  Global<const std::uint8_t> sent;
  SignUnits units;
  std::int32_t v_column, residual_column, num_sources;
  std::int64_t byte_first, source_bytes;
  float residual_share, beta1, rest, per_moved, share;

  static constexpr int kStretch = static_cast<int>(kCodeBlock);
  static constexpr int kStretches = static_cast<int>(kSignPiece) / kStretch / kSignWarps;
  using Slots = float[kCodeSlots];

  ATOLL_DEVICE static int first_of(int stretch) {
    return (stretch * kSignWarps + warp()) * kStretch;
  }
  /// What is added to a lane's elements, from `begin` on of the flat vector, is made of these:
  /// those of the second are there for some. Nothing is stored between, so that all come together.
  ATOLL_DEVICE void load_added(Slots& first, Slots& second, std::int64_t begin, int size) const {
    ATOLL_UNROLL
    for (int slot = 0; slot < kCodeSlots; ++slot) {
      const int i = slot * kWarp + lane();
      first[slot] = second[slot] = 0;
      if (i >= size) continue;
      if constexpr (kAdds == kAddsGradients) first[slot] = grads.load(begin + i);
      if constexpr (kAdds == kAddsMoves) {
        first[slot] = per_moved == 0 ? m.load(begin + i) : anchor.load(begin + i);
        if (per_moved != 0) second[slot] = values.load(begin + i);
      }
    }
  }
  /// The signs of a stretch as they were: lane l has byte l.
  ATOLL_DEVICE std::uint32_t load_signs(std::int64_t byte, int size) const {
    const int end = (size + 7) / 8;
    return lane() < end ? codes.load(byte + lane()) : 0;
  }
  ATOLL_DEVICE float added(float first, float second, float unit, float old) const {
    if constexpr (kAdds == kAddsGradients) return beta1 * old + rest * first;
    if constexpr (kAdds == kAddsMoves) {
      return per_moved == 0 ? first : (first - second) * per_moved * unit;
    }
    return 0;
  }
  ATOLL_DEVICE float added_by_ranks(std::int64_t code, int i, float unit) const {
    float sum = 0;
    for (std::int64_t source = 0; source < num_sources; ++source) {
      const std::int64_t byte = source * source_bytes + code - byte_first;
      sum += sign_of(sent, byte, i, load_float(sent, byte));
    }
    return sum * share * unit;
  }
  /// Shares the momenta of 256 elements from `at` on, and in their units, and leaves their second
  /// moments in v_here. Returns how many of a lane's are not masked.
  ATOLL_DEVICE int add(const SignRow& row, int at, int size, float old_scale, Slots& v_here) const {
    const std::int64_t v_at = row[v_column] + at, residual_at = row[residual_column] + at;
    const std::int64_t begin = row[kSignBegin] + at, byte = row[kSignByte];
    const auto momenta = shared_memory<float>(0, static_cast<int>(kSignPiece));
    const auto scaled = shared_memory<float>(kMomentaBytes, static_cast<int>(kSignPiece));
    Slots momentum, first, second;
    ATOLL_UNROLL
    for (int slot = 0; slot < kCodeSlots; ++slot) {
      const int i = slot * kWarp + lane();
      v_here[slot] = i < size ? v.load(v_at + i) : 0.0F;
      momentum[slot] = i < size ? residual.load(residual_at + i) : 0.0F;
    }
    load_added(first, second, begin, size);
    const std::uint32_t signs = kAdds == kAddsGradients ? load_signs(byte + 4 + at / 8, size) : 0;
    int unmasked = 0;
    ATOLL_UNROLL
    for (int slot = 0; slot < kCodeSlots; ++slot) {
      const int i = slot * kWarp + lane();
      const bool is_masked = v_here[slot] == 0;
      const float unit = units.of(v_here[slot]);
      float old = 0;
      if constexpr (kAdds == kAddsGradients) {
        const std::uint32_t bits = shuffle(signs, slot * (kWarp / 8) + lane() / 8);
        const float sign = (bits >> (lane() % 8) & 1) != 0 ? -old_scale : old_scale;
        old = is_masked ? 0.0F : sign * unit;
      }
      if (i >= size) continue;
      float m_i = momentum[slot];
      if constexpr (kAdds == kAddsRanks) {
        m_i = m_i * residual_share + added_by_ranks(byte, at + i, unit);
      } else if constexpr (kAdds != kAddsNothing) {
        m_i = m_i * residual_share + added(first[slot], second[slot], unit, old);
      }
      momenta.store(at + i, m_i);
      scaled.store(at + i, is_masked ? 0.0F : m_i / unit);
      unmasked += is_masked ? 0 : 1;
    }
    return unmasked;
  }
  /// A column of the sum of magnitudes, whose elements are added in their order, while later ones
  /// are loaded and converted. Behind the last are zeroes, which change no sum.
  ATOLL_DEVICE static double column_of(const Shared<float>& scaled, int whole) {
    constexpr int kAtOnce = 4, kStep = kAtOnce * kSumColumns;
    const int end = whole;
    const auto load = [&](float(&values)[kAtOnce], int first) {
      ATOLL_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        const int i = first + j * kSumColumns;
        values[j] = i < end ? fabsf(scaled.load(i)) : 0.0F;
      }
    };
    float next[kAtOnce], later[kAtOnce];
    double now[kAtOnce], sum = 0;
    load(next, thread());
    ATOLL_UNROLL
    for (int j = 0; j < kAtOnce; ++j) now[j] = static_cast<double>(next[j]);
    load(next, thread() + kStep);
    ATOLL_NO_UNROLL
    for (int i = thread(); i < end; i += kStep) {
      load(later, i + 2 * kStep);
      ATOLL_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        sum += now[j];
        now[j] = static_cast<double>(next[j]);
        next[j] = later[j];
      }
    }
    return sum;
  }
  /// The mean magnitude of what is not masked; all threads get it.
  ATOLL_DEVICE float mean_of(const Shared<float>& scaled, int end, int unmasked) const {
    const auto columns = shared_memory<double>(kColumnsAt, kSumColumns);
    const auto counts = shared_memory<std::int32_t>(kCountsAt, kSignWarps);
    for (int mask = kWarp / 2; mask > 0; mask /= 2) unmasked += shuffle_xor(unmasked, mask);
    if (lane() == 0) counts.store(warp(), unmasked);
    sync_block();
    const int whole = end / kSumColumns * kSumColumns;
    if (thread() < kSumColumns) columns.store(thread(), column_of(scaled, whole));
    sync_block();
    double sum = 0;
    for (int column = 0; column < kSumColumns; ++column) sum += columns.load(column);
    for (int i = whole; i < end; ++i) sum += static_cast<double>(fabsf(scaled.load(i)));
    int count = 0;
    for (int i = 0; i < kSignWarps; ++i) count += counts.load(i);
    return count == 0 ? 0.0F : static_cast<float>(sum / static_cast<double>(count));
  }
  /// Writes the signs of 256 momenta from `at` on, and what they do not say.
  ATOLL_DEVICE void encode(const SignRow& row, int at, int size, float scale,
                           const Slots& v_here) const {
    const std::int64_t residual_at = row[residual_column] + at, byte = row[kSignByte] + 4 + at / 8;
    const auto momenta = shared_memory<float>(0, static_cast<int>(kSignPiece));
    const auto scaled = shared_memory<float>(kMomentaBytes, static_cast<int>(kSignPiece));
    Slots left;
    std::int32_t largest = 0;
    std::uint32_t own_bits = 0;  // of the slot whose byte is this lane's
    ATOLL_UNROLL
    for (int slot = 0; slot < kCodeSlots; ++slot) {
      const int i = slot * kWarp + lane();
      bool is_negative = false;
      left[slot] = 0;
      if (i < size) {
        is_negative = std::bit_cast<std::uint32_t>(scaled.load(at + i)) >> 31 != 0;
        const float said = (is_negative ? -scale : scale) * units.of(v_here[slot]);
        left[slot] = v_here[slot] == 0 ? 0.0F : momenta.load(at + i) - said;
      }
      const std::uint32_t bits = ballot(is_negative);
      if (lane() / (kWarp / 8) == slot) own_bits = bits;
      const std::int32_t magnitude = magnitude_bits(left[slot]);
      largest = magnitude > largest ? magnitude : largest;
    }
    const int end = (size + 7) / 8;
    if (lane() < end) {
      codes.store(byte + lane(), static_cast<std::uint8_t>(own_bits >> (lane() % 4 * 8)));
    }
    largest = largest_of_warp(largest);
    const bool is_rounded = largest < kCodeLimitBits;
    const float offset = is_rounded ? grid_offset(largest) : 0.0F;
    ATOLL_UNROLL
    for (int slot = 0; slot < kCodeSlots; ++slot) {
      const int i = slot * kWarp + lane();
      if (i < size)
        residual.store(residual_at + i, is_rounded ? (left[slot] + offset) - offset : left[slot]);
    }
  }
  ATOLL_DEVICE void operator()() const {
    const SignRow row = sign_row(pieces);
    const int end = static_cast<int>(row[kSignCount]);
    const float old_scale =
        kAdds == kAddsGradients ? load_float(reading(codes), row[kSignByte]) : 0.0F;
    Slots v_here[kStretches];
    int unmasked = 0;
    ATOLL_UNROLL
    for (int stretch = 0; stretch < kStretches; ++stretch) {
      const int at = first_of(stretch);
      if (at < end) unmasked += add(row, at, end - at, old_scale, v_here[stretch]);
    }
    const auto scaled = shared_memory<float>(kMomentaBytes, static_cast<int>(kSignPiece));
    const float scale = mean_of(scaled, end, unmasked);
    if (warp() == 0) store_float(codes, row[kSignByte], scale);
    ATOLL_UNROLL
    for (int stretch = 0; stretch < kStretches; ++stretch) {
      const int at = first_of(stretch);
      if (at < end) encode(row, at, end - at, scale, v_here[stretch]);
    }
  }
};

/// See ops/codes/signs.h.
template <bool kAnchors>
struct ApplySignsKernel {
  static constexpr const char* kName = "apply_signs";
  static constexpr int kMaxThreads = kSignThreads;
  static constexpr int kAtOnce = 4;
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
    const int end = static_cast<int>(row[kSignCount]), step = num_threads();
    const Global<const float> origin = kAnchors ? anchor : Global<const float>{x.data, x.size};
    // What kAtOnce elements need is loaded before any is stored.
    for (int first = thread(); first < end; first += kAtOnce * step) {
      float v_i[kAtOnce], from[kAtOnce];
      std::uint32_t bits[kAtOnce];
      ATOLL_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        const int i = first + j * step;
        const bool is_there = i < end;
        v_i[j] = is_there ? v.load(v_at + i) : 0.0F;
        from[j] = is_there ? origin.load(begin + i) : 0.0F;
        bits[j] = is_there ? codes.load(byte + 4 + i / 8) : 0;
      }
      ATOLL_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        const int i = first + j * step;
        if (i >= end) continue;
        const float value = (bits[j] >> (i % 8) & 1) != 0 ? -scale : scale;
        const float sign = v_i[j] == 0 ? 0.0F : value;
        if (m_at >= 0) m.store(m_at + i, sign * units.of(v_i[j]));
        if constexpr (kAnchors) {
          x.store(begin + i, from[j] - step_size * sign - decayed * from[j]);
        } else {
          x.store(begin + i, from[j] - (step_size * sign + decayed * from[j]));
        }
      }
    }
  }
};

/// See ops/codes/signs.h.
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
