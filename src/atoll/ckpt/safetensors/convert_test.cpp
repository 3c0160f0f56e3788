#include "atoll/ckpt/safetensors/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "atoll/base/error.h"

namespace atl::ckpt {
namespace {

// The value of f16 bits, from the definition of the format.
double f16_value(int bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const double value =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -value : value;
}

TEST(Convert, EveryFiniteF16KeepsItsValueAndReturns) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    if (((bits >> 10) & 31) == 31) continue;
    const float value = f16_to_f32(static_cast<std::uint16_t>(bits));
    ASSERT_EQ(value, f16_value(bits)) << bits;
    ASSERT_EQ(f32_to_f16(value), bits);
  }
}

TEST(Convert, EveryBf16Returns) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    const float value = bf16_to_f32(static_cast<std::uint16_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(f32_to_bf16(value), bits);
  }
}

// Between each two neighbours: below the middle goes down, above goes up, the middle to the even.
template <typename Widen, typename Narrow>
void check_rounding(int last, Widen widen, Narrow narrow) {
  for (int bits = 0; bits < last; ++bits) {
    const auto low = static_cast<std::uint16_t>(bits);
    const float a = widen(low);
    const float b = widen(static_cast<std::uint16_t>(bits + 1));
    const auto middle = static_cast<float>((double{a} + double{b}) / 2);
    ASSERT_EQ(narrow(middle), bits + bits % 2) << bits;
    ASSERT_EQ(narrow(std::nextafter(middle, a)), bits) << bits;
    ASSERT_EQ(narrow(std::nextafter(middle, b)), bits + 1) << bits;
    ASSERT_EQ(narrow(-std::nextafter(middle, b)), (bits + 1) | 0x8000) << bits;
  }
}

TEST(Convert, F16RoundsToNearestEven) {
  check_rounding(0x7bff, f16_to_f32, f32_to_f16);
}

TEST(Convert, Bf16RoundsToNearestEven) {
  check_rounding(0x7f7f, bf16_to_f32, f32_to_bf16);
}

TEST(Convert, OverflowInfinityAndNanStayWhatTheyAre) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(-inf), 0xfc00);
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(f32_to_bf16(inf), 0x7f80);
  EXPECT_EQ(f16_to_f32(0xfc00), -inf);
  // A NaN whose payload lies in the lower bits only must not become infinity.
  const auto nan = std::bit_cast<float>(0x7f800001u);
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(nan))));
  EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(nan))));
  EXPECT_TRUE(std::isnan(f16_to_f32(0x7c01)));
}

std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(Convert, WhatADtypeCannotHoldIsNamed) {
  const float inf = std::numeric_limits<float>::infinity();
  // The neighbours of the first f32 that rounds to infinity; what is infinite already may stay.
  for (const auto& [dtype, last] : {std::pair(Dtype::kBf16, std::bit_cast<float>(0x7f7f7fffU)),
                                    std::pair(Dtype::kF16, std::nextafterf(65520.0F, 0.0F))}) {
    const std::vector<float> fits = {last, -last, inf, -inf};
    EXPECT_EQ(error_of([&] { check_fits(fits, dtype, "w"); }), "none");
    const std::vector<float> beyond = {0, -std::nextafterf(last, inf)};
    EXPECT_THAT(error_of([&] { check_fits(beyond, dtype, "w"); }),
                testing::HasSubstr("tensor \"w\" holds -"));
    std::array<std::byte, 2 * sizeof(float)> bytes;
    std::memcpy(bytes.data(), beyond.data(), bytes.size());
    std::array<std::byte, 4> out;
    EXPECT_THAT(error_of([&] { convert_floats(Dtype::kF32, bytes, dtype, out, "v"); }),
                testing::HasSubstr("tensor \"v\""));
  }
  const double values[] = {1e39, 1.0};
  const auto bytes = std::as_bytes(std::span(values));
  EXPECT_THAT(error_of([&] { check_fits_f32(Dtype::kF64, bytes, "w"); }),
              testing::HasSubstr("beyond the largest f32"));
  EXPECT_EQ(error_of([&] { check_fits_f32(Dtype::kF64, bytes.subspan(8), "w"); }), "none");
}

TEST(Convert, SpansOfEveryFloatDtypeRoundTrip) {
  const std::array<float, 4> values = {0.0f, -1.5f, 0.25f, 1024.0f};
  for (const Dtype dtype : {Dtype::kF32, Dtype::kF64, Dtype::kBf16, Dtype::kF16}) {
    std::array<std::byte, 33> bytes{};  // read and written one byte off any alignment
    const auto used = std::span(bytes).subspan(1, 4 * dtype_size(dtype));
    convert_from_f32(values, dtype, used);
    std::array<float, 4> back{};
    convert_to_f32(dtype, used, back);
    EXPECT_EQ(back, values) << dtype_name(dtype);
  }
}

}  // namespace
}  // namespace atl::ckpt
