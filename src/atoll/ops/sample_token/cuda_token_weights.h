#pragma once

// The arithmetic of drawing a token, the same on the host and in kernels: weights are whole
// numbers, so that sums are the same in every order, and a draw is a comparison of whole numbers
// (docs/decisions/0075-a-token-is-drawn-among-whole-numbers.md).

#include <bit>
#include <cstdint>

#include "atoll/device/cuda/kernel.h"

namespace atl::ops {

/// exp(x) 2^40, rounded down, for x <= 0: to 3e-7 of itself where it is not small. Zero below -27,
/// and for NaN.
ATOLL_HOST_AND_DEVICE constexpr std::uint64_t token_weight(float x) {
  const bool is_there = x > -27.0F;
  const float z = is_there ? x : 0.0F;
  const float shift = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  const float n = (z * 1.44269504F + shift) - shift;
  // ln 2 in two parts, of which the first times n is exact (Cody & Waite 1980, chapter 6).
  const float r = (z - n * 0.693359375F) - n * -2.12194440e-4F;
  float sum = 1.0F / 5040;
  sum = sum * r + 1.0F / 720;
  sum = sum * r + 1.0F / 120;
  sum = sum * r + 1.0F / 24;
  sum = sum * r + 1.0F / 6;
  sum = sum * r + 0.5F;
  sum = sum * r + 1.0F;
  sum = sum * r + 1.0F;
  const float scale = std::bit_cast<float>((static_cast<std::int32_t>(n) + 40 + 127) << 23);
  return is_there ? static_cast<std::uint64_t>(sum * scale) : 0;
}

/// What a logit is compared by: the larger the logit, the larger the word. The two zeros are one.
ATOLL_HOST_AND_DEVICE constexpr std::uint32_t logit_order(float logit) {
  const auto bits = std::bit_cast<std::uint32_t>(logit + 0.0F);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}
/// The logit that has this order.
ATOLL_HOST_AND_DEVICE constexpr float logit_of_order(std::uint32_t order) {
  return std::bit_cast<float>((order & 0x80000000U) != 0 ? order & 0x7fffffffU : ~order);
}

/// Logits and their tokens as one number each: the likelier token has the larger one, and of equals
/// the lower id.
ATOLL_HOST_AND_DEVICE constexpr std::uint64_t token_rank(float logit, std::uint32_t token) {
  return std::uint64_t{logit_order(logit)} << 32 | ~token;
}
ATOLL_HOST_AND_DEVICE constexpr std::uint32_t token_of_rank(std::uint64_t rank) {
  return ~static_cast<std::uint32_t>(rank);
}
ATOLL_HOST_AND_DEVICE constexpr float logit_of_rank(std::uint64_t rank) {
  return logit_of_order(static_cast<std::uint32_t>(rank >> 32));
}

/// Not a number to draw by: NaN or +infinity.
ATOLL_HOST_AND_DEVICE constexpr bool is_bad_logit(float logit) {
  return !(logit <= 0x1.fffffep127F);
}

/// The least sum that is a share of `share` / 2^32 of `total`, at least 1. share <= 2^32, total <
/// 2^63.
ATOLL_HOST_AND_DEVICE constexpr std::uint64_t least_share(std::uint64_t total,
                                                          std::uint64_t share) {
  const std::uint64_t low = (total & 0xffffffffU) * share;
  const std::uint64_t sum = (total >> 32) * share + ((low + 0xffffffffU) >> 32);
  return sum > 0 ? sum : 1;
}

/// floor(draw total / 2^64): uniform in [0, total) for a uniform draw.
ATOLL_HOST_AND_DEVICE constexpr std::uint64_t drawn_below(std::uint64_t draw, std::uint64_t total) {
  const std::uint64_t low = draw & 0xffffffffU, high = draw >> 32;
  const std::uint64_t total_low = total & 0xffffffffU, total_high = total >> 32;
  const std::uint64_t first = high * total_low + (low * total_low >> 32);
  const std::uint64_t second = low * total_high + (first & 0xffffffffU);
  return high * total_high + (first >> 32) + (second >> 32);
}

}  // namespace atl::ops
