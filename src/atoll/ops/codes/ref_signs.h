#pragma once

// Signs of momenta, an element at a time: ops/codes/signs.h.

#include <array>
#include <cmath>
#include <cstring>

#include "atoll/ops/codes/ref.h"
#include "atoll/ops/codes/signs.h"

namespace atl::ops::ref {

/// The sign of element i times the scale.
inline float sign_of(const std::uint8_t* code, std::int64_t i) {
  float scale = 0;
  std::memcpy(&scale, code, sizeof scale);
  return (code[4 + i / 8] >> (i % 8) & 1) != 0 ? -scale : scale;
}

/// The elements of a piece.
inline float* elements_of(const Placed& placed, const std::int64_t* piece) {
  if (!placed.tensor.defined() || piece[placed.column] < 0) return nullptr;
  return placed.tensor.data<float>() + piece[placed.column];
}

/// Over eight columns, then the columns, then the rest.
inline double sum_of_magnitudes(const float* x, std::int64_t n) {
  std::array<double, 8> columns = {};
  const std::int64_t whole = n / 8 * 8;
  for (std::int64_t i = 0; i < whole; ++i) {
    columns[static_cast<std::size_t>(i % 8)] += static_cast<double>(std::fabs(x[i]));
  }
  double sum = 0;
  for (const double column : columns) sum += column;
  for (std::int64_t i = whole; i < n; ++i) sum += static_cast<double>(std::fabs(x[i]));
  return sum;
}

/// What is added to element i of a piece.
inline float added_sign(const EncodeSigns& a, const std::int64_t* piece, std::int64_t i, float unit,
                        bool is_masked) {
  const std::int64_t e = piece[kSignBegin] + i;
  if (a.adds == EncodeSigns::Adds::kGradients) {
    const std::uint8_t* code = a.codes.data<std::uint8_t>() + piece[kSignByte];
    const float m = is_masked ? 0 : sign_of(code, i) * unit;
    return a.beta1 * m + a.rest * a.grads.data<float>()[e];
  }
  if (a.adds == EncodeSigns::Adds::kMoves) {
    if (a.per_moved == 0) return a.m.data<float>()[e];
    return (a.anchor.data<float>()[e] - a.values.data<float>()[e]) * a.per_moved * unit;
  }
  float sum = 0;
  for (std::int64_t source = 0; source < a.sent.sources; ++source) {
    sum += sign_of(a.sent.codes.data<std::uint8_t>() + source * a.sent.source_bytes +
                       piece[kSignByte] - a.sent.byte_first,
                   i);
  }
  return sum * a.share * unit;
}

inline void encode_signs_of(const EncodeSigns& a, const std::int64_t* piece) {
  const std::int64_t n = piece[kSignCount];
  const float* v = elements_of(a.v, piece);
  float* residual = elements_of(a.residual, piece);
  std::array<float, kSignPiece> scaled = {};
  std::int64_t unmasked = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const bool is_masked = v[i] == 0;
    const float unit = a.units.of(v[i]);
    if (a.adds != EncodeSigns::Adds::kNothing) {
      residual[i] = residual[i] * a.residual_share + added_sign(a, piece, i, unit, is_masked);
    }
    scaled[static_cast<std::size_t>(i)] = is_masked ? 0 : residual[i] / unit;
    unmasked += is_masked ? 0 : 1;
  }
  const float scale =
      unmasked == 0
          ? 0
          : static_cast<float>(sum_of_magnitudes(scaled.data(), n) / static_cast<double>(unmasked));
  std::uint8_t* code = a.codes.data<std::uint8_t>() + piece[kSignByte];
  std::memcpy(code, &scale, sizeof scale);
  std::fill_n(code + 4, (n + 7) / 8, std::uint8_t{0});
  for (std::int64_t i = 0; i < n; ++i) {
    const bool is_negative = std::signbit(scaled[static_cast<std::size_t>(i)]);
    if (is_negative) code[4 + i / 8] = static_cast<std::uint8_t>(code[4 + i / 8] | 1 << (i % 8));
    residual[i] = v[i] == 0 ? 0 : residual[i] - (is_negative ? -scale : scale) * a.units.of(v[i]);
  }
  for (std::int64_t i = 0; i < n; i += kCodeBlock) {
    round_residual({residual + i, static_cast<std::size_t>(std::min(kCodeBlock, n - i))});
  }
}

/// Calls each(row of the table) for each piece.
template <typename Each>
void for_pieces(const Tensor& pieces, Each&& each) {
  for (std::int64_t p = 0; p < pieces.dim(0); ++p) {
    each(pieces.data<std::int64_t>() + p * kSignColumns);
  }
}

inline void encode_signs(const EncodeSigns& a) {
  for_pieces(a.pieces, [&](const std::int64_t* piece) { encode_signs_of(a, piece); });
}

inline void apply_signs(const ApplySigns& a) {
  for_pieces(a.pieces, [&](const std::int64_t* piece) {
    const float* v = elements_of(a.v, piece);
    float* m = elements_of(a.m, piece);
    float* x = a.x.data<float>() + piece[kSignBegin];
    const float decay = piece[kSignDecay] != 0 ? a.decay : 0;
    for (std::int64_t i = 0; i < piece[kSignCount]; ++i) {
      const float sign =
          v[i] == 0 ? 0 : sign_of(a.codes.data<std::uint8_t>() + piece[kSignByte], i);
      if (m != nullptr) m[i] = sign * a.units.of(v[i]);
      if (a.anchor.defined()) {
        const float anchor = a.anchor.data<float>()[piece[kSignBegin] + i];
        x[i] = anchor - a.step_size * sign - decay * anchor;
      } else {
        x[i] -= a.step_size * sign + decay * x[i];
      }
    }
  });
}

inline void zero_one_step(const ZeroOneStep& a) {
  float *x = a.x.data<float>(), *m = a.m.data<float>(), *v = a.v.data<float>();
  const float* grads = a.grads.data<float>();
  for_pieces(a.pieces, [&](const std::int64_t* piece) {
    const float decay = piece[kSignDecay] != 0 ? a.decay : 0;
    for (std::int64_t i = piece[kSignBegin]; i < piece[kSignBegin] + piece[kSignCount]; ++i) {
      if (a.sums) {
        const float g = a.grad_scale * grads[i];
        m[i] = a.beta1 * m[i] + a.rest1 * g;
        v[i] = a.beta2 * v[i] + a.rest2 * g * g;
        x[i] -= (v[i] == 0 ? 0 : a.step_size * m[i] / a.units.of(v[i])) + decay * x[i];
      } else {
        if (a.is_first) a.anchor.data<float>()[i] = x[i];
        m[i] = a.beta1 * m[i] + a.rest1 * grads[i];
        if (v[i] != 0) x[i] -= a.step_size * m[i] / a.units.of(v[i]);
      }
    }
  });
}

inline void add_scaled(const Tensor& pieces, float scale, const Placed& from, const Placed& to) {
  for_pieces(pieces, [&](const std::int64_t* piece) {
    const float* x = elements_of(from, piece);
    float* y = elements_of(to, piece);
    for (std::int64_t i = 0; i < piece[kSignCount]; ++i) y[i] += scale * x[i];
  });
}

inline void sketch(const Tensor& x, std::span<float> sums) {
  const std::int64_t n = x.num_elements(), numbers = std::ssize(sums);
  const std::int64_t apart = sketch_rows_apart(n, numbers), blocks = kSketchPartials / numbers;
  for (std::int64_t k = 0; k < numbers; ++k) {
    float sum = 0;
    for (std::int64_t block = 0; block < blocks; ++block) {
      float partial = 0;
      for (std::int64_t row = block * apart; row < (block + 1) * apart; ++row) {
        const std::int64_t i = row * numbers + k;
        if (i >= n) break;
        const std::uint64_t signs = sketch_signs(static_cast<std::uint64_t>(i / 64 * 64));
        const float value = x.data<float>()[i];
        partial += (signs >> (i % 64) & 1U) != 0 ? -value : value;
      }
      sum += partial;
    }
    sums[static_cast<std::size_t>(k)] = sum;
  }
}

}  // namespace atl::ops::ref
