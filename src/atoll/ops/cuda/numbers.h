#pragma once

// Numbers in kernels: what is stored, what is computed with, and functions made of additions,
// products and fused products alone. Compiled without contraction, they give the same bits on every
// GPU and in the shim.

#include <array>
#include <cmath>
#include <cstdint>

#include "atoll/device/cuda/kernel.h"

namespace atl {

// Defined in base/rng.h and simd/bf16.h for the host; the same code serves a GPU.
struct Bf16;
ATOLL_HOST_AND_DEVICE float to_f32(Bf16 value);
ATOLL_HOST_AND_DEVICE Bf16 to_bf16(float value);
ATOLL_HOST_AND_DEVICE Bf16 to_bf16_stochastic(float value, std::uint16_t draw);
ATOLL_HOST_AND_DEVICE std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                                          std::array<std::uint32_t, 2> key);
ATOLL_HOST_AND_DEVICE float to_uniform(std::uint32_t word);

}  // namespace atl

#include "atoll/base/rng.h"
#include "atoll/simd/bf16.h"

namespace atl::ops::cuda {

using namespace atl::cuda;

/// Elements that 16 bytes hold.
template <typename T>
constexpr int kPack = 16 / static_cast<int>(sizeof(T));

ATOLL_DEVICE float widened(float value) {
  return value;
}
ATOLL_DEVICE float widened(Bf16 value) {
  return to_f32(value);
}
template <typename T>
ATOLL_DEVICE T narrowed(float value) {
  if constexpr (std::is_same_v<T, float>)
    return value;
  else
    return {bf16_bits(value)};
}

/// A pack as words: elements of a Pack<Bf16, V> that are taken one by one lie in a register each,
/// and these two in one.
template <typename T, int V>
struct Held {
  // Of one bf16, its bits.
  std::uint32_t words[V * sizeof(T) < 4 ? 1 : V * sizeof(T) / 4];

  ATOLL_DEVICE static Held of(const Pack<T, V>& pack) {
    Held held = {};
    __builtin_memcpy(held.words, &pack, sizeof pack);  // nvcc 13.0 fails on a bit_cast
    return held;
  }
  ATOLL_DEVICE float operator[](int i) const {
    if constexpr (sizeof(T) == 4) {
      return std::bit_cast<float>(words[i]);
    } else {
      return std::bit_cast<float>(i % 2 == 0 ? words[i / 2] << 16 : words[i / 2] & 0xffff0000U);
    }
  }
};
/// The pack that stores `values`.
template <typename T, int V>
ATOLL_DEVICE Pack<T, V> packed(const float (&values)[V]) {
  Pack<T, V> pack;
  if constexpr (sizeof(T) == 4) {
    __builtin_memcpy(&pack, values, sizeof pack);
  } else if constexpr (V == 1) {
    pack[0] = narrowed<T>(values[0]);
  } else {
    std::uint32_t words[V / 2];
    ATOLL_UNROLL
    for (int i = 0; i < V; i += 2) words[i / 2] = pack_bf16(values[i], values[i + 1]);
    __builtin_memcpy(&pack, words, sizeof pack);
  }
  return pack;
}

/// A stream of random words as kernels get it: what RngStream::key() and salt() give.
struct Draws {
  std::uint32_t key[2];
  std::uint32_t salt[2];

  ATOLL_DEVICE std::array<std::uint32_t, 4> block(std::uint64_t i) const {
    return philox(
        {static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32), salt[0], salt[1]},
        {key[0], key[1]});
  }
};

/// What the streams RngStream(seed, purpose, a, b) of all b have in common.
struct StreamFamily {
  std::uint32_t words[4];

  ATOLL_DEVICE Draws stream(std::uint64_t b) const {
    const auto named = philox(
        {static_cast<std::uint32_t>(b), static_cast<std::uint32_t>(b >> 32), words[0], words[1]},
        {words[2], words[3]});
    return {{named[0], named[1]}, {named[2], named[3]}};
  }
};

/// words[i], from registers: an index that the compiler does not know would take a stack.
ATOLL_DEVICE std::uint32_t pick(const std::array<std::uint32_t, 4>& words, int i) {
  const std::uint32_t low = i % 2 == 0 ? words[0] : words[1];
  const std::uint32_t high = i % 2 == 0 ? words[2] : words[3];
  return i < 2 ? low : high;
}

/// e^x, to 1 unit in the last place or two. 0 below -104, infinite above 89.
ATOLL_DEVICE float exp_f32(float x) {
  if (!(x > -104.0F)) return x != x ? x : 0.0F;
  if (x > 89.0F) return 1e38F * 1e38F;
  const float shift = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  const float n = (x * 1.44269504F + shift) - shift;
  // ln 2 in two parts (Cody & Waite 1980, chapter 6).
  const float r = fmaf(n, -1.42860677e-6F, fmaf(n, -0.693145752F, x));
  float sum = 1.0F / 5040;
  sum = fmaf(sum, r, 1.0F / 720);
  sum = fmaf(sum, r, 1.0F / 120);
  sum = fmaf(sum, r, 1.0F / 24);
  sum = fmaf(sum, r, 1.0F / 6);
  sum = fmaf(sum, r, 0.5F);
  sum = fmaf(sum, r, 1.0F);
  sum = fmaf(sum, r, 1.0F);
  // 2^n in two factors, so that results below the smallest normal number are reached.
  const int whole = static_cast<int>(n);
  const int half = whole / 2;
  const float first = std::bit_cast<float>((half + 127) << 23);
  const float second = std::bit_cast<float>((whole - half + 127) << 23);
  return sum * first * second;
}

/// e^x of x up to 88.3 where what is below the smallest normal number may be 0: half of the
/// instructions of exp_f32, and no branch. 0 below -87.3; a NaN stays one.
ATOLL_DEVICE float exp_falling(float x) {
  const float shift = 12582912.0F;  // as in exp_f32
  const float shifted = fmaf(x, 1.44269504F, shift);
  const float n = shifted - shift;
  const float r = fmaf(n, -1.42860677e-6F, fmaf(n, -0.693145752F, x));
  // The polynomial of degree 6 that is nearest to e^r, relatively, for r to ln 2 / 2 (Remez).
  float sum = 0.001384364441037178F;
  sum = fmaf(sum, r, 0.008374163880944252F);
  sum = fmaf(sum, r, 0.04166800156235695F);
  sum = fmaf(sum, r, 0.16666431725025177F);
  sum = fmaf(sum, r, 0.49999994039535522F);
  sum = fmaf(sum, r, 1.0F);
  sum = fmaf(sum, r, 1.0F);
  // The lowest bits of `shifted` are n: above the fraction they make 2^n of 1.
  const float power =
      std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) << 23) + 0x3f800000U);
  return x < -87.3F ? 0.0F : sum * power;
}

/// The natural logarithm of a normal number above 0, to a unit in the last place or two; a NaN
/// stays one.
ATOLL_DEVICE float log_f32(float x) {
  const int bits = std::bit_cast<int>(x);
  // The fraction in [sqrt(1/2), sqrt(2)).
  const int exponent = (bits - 0x3f3504f3) >> 23;
  const float m = std::bit_cast<float>(bits - (exponent << 23));
  const float f = m - 1.0F;
  const float s = f / (2.0F + f);
  const float z = s * s;
  float sum = 2.0F / 9;
  sum = fmaf(sum, z, 2.0F / 7);
  sum = fmaf(sum, z, 2.0F / 5);
  sum = fmaf(sum, z, 2.0F / 3);
  const float part = fmaf(2.0F, s, s * z * sum);
  const auto e = static_cast<float>(exponent);
  return x != x ? x : fmaf(e, 0.693145752F, fmaf(e, 1.42860677e-6F, part));
}

/// 1 / (1 + e^-x), to an ulp or two; 0 below -87.3. Without a division, which branches.
ATOLL_DEVICE float sigmoid_f32(float x) {
  const float e = exp_falling(-fabsf(x));
  const float d = 1.0F + e;  // in (1, 2]
  // 1 / d: a line that is off by a 17th at most, then twice an error of its third power.
  float y = fmaf(-8.0F / 17, d, 24.0F / 17);
  ATOLL_UNROLL
  for (int turn = 0; turn < 2; ++turn) {
    const float off = fmaf(-d, y, 1.0F);
    y = fmaf(y, fmaf(off, off, off), y);
  }
  return x < 0 ? e * y : y;
}

/// tanh(x), to two units in the last place or three; a NaN stays one.
ATOLL_DEVICE float tanh_f32(float x) {
  // Near 0, where the other formula cancels: x + x^3 q(x^2), the polynomial that meets it at the
  // Chebyshev points of x^2 from 0 to 0.4.
  const float z = x * x;
  float q = fmaf(-6.04516501e-3F, z, 2.09613293e-2F);
  q = fmaf(q, z, -5.38432635e-2F);
  q = fmaf(q, z, 1.33327186e-1F);
  q = fmaf(q, z, -3.33333284e-1F);
  const float near = fmaf(x * z, q, x);
  // (1 + tanh(u)) / 2 is the sigmoid of 2 u, and above 1/2 it loses nothing.
  const float far = fmaf(2.0F, sigmoid_f32(2.0F * fabsf(x)), -1.0F);
  return z < 0.4F ? near : (x < 0 ? -far : far);
}

/// 1 - erf(x), to 1.2e-7 of itself and what rounding x^2 adds (Chebyshev fit of Press et al.,
/// "Numerical Recipes", section 6.2).
ATOLL_DEVICE float erfc_f32(float x) {
  const float z = x < 0 ? -x : x;
  const float t = 1.0F / fmaf(0.5F, z, 1.0F);
  float sum = 0.17087277F;
  sum = fmaf(sum, t, -0.82215223F);
  sum = fmaf(sum, t, 1.48851587F);
  sum = fmaf(sum, t, -1.13520398F);
  sum = fmaf(sum, t, 0.27886807F);
  sum = fmaf(sum, t, -0.18628806F);
  sum = fmaf(sum, t, 0.09678418F);
  sum = fmaf(sum, t, 0.37409196F);
  sum = fmaf(sum, t, 1.00002368F);
  sum = fmaf(sum, t, -1.26551223F);
  const float tail = t * exp_falling(fmaf(-z, z, sum));
  return x < 0 ? 2.0F - tail : tail;
}

/// The sum over a warp's lanes, in each lane the same, added as a tree.
ATOLL_DEVICE float warp_sum(float value) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}
ATOLL_DEVICE float warp_max(float value) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const float other = shuffle_xor(value, mask);
    value = other > value ? other : value;
  }
  return value;
}

}  // namespace atl::ops::cuda
