#include "atoll/compress/feedback.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "atoll/compress/testing.h"

namespace atl::compress {
namespace {

using test::codec_values;

std::vector<std::byte> bytes_for(const Codec& codec, std::size_t n) {
  return std::vector<std::byte>(codec.max_bytes(static_cast<std::int64_t>(n)));
}

TEST(Feedback, TheResidualIsWhatTheBytesDoNotSay) {
  for (const char* name : {"int8", "int4"}) {
    const auto codec = make_codec(name);
    for (const std::size_t n : {1U, 255U, 256U, 1000U, 8192U}) {
      const std::vector<float> x = codec_values(n, 1);
      const std::vector<float> before = codec_values(n, 2);
      std::vector<float> residual = before;
      std::vector<std::byte> bytes = bytes_for(*codec, n);
      encode_residual(*codec, x, residual, bytes);
      std::vector<float> said(n, -1);
      decode_residual(*codec, bytes, /*adds=*/false, said);
      for (std::size_t i = 0; i < n; ++i) {
        const float sum = x[i] + before[i];
        // The grid is 2^-21 of the block's largest residual, which is half a step of the codec.
        EXPECT_NEAR(said[i] + residual[i], sum, 1e-6 * std::abs(said[i]) + 1e-8)
            << name << " " << i;
      }
      std::vector<float> twice = said;
      decode_residual(*codec, bytes, /*adds=*/true, twice);
      for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(twice[i], said[i] + said[i]);
    }
  }
}

// An element that is far below its block's step is never said without feedback, and with it comes
// through in the mean.
TEST(Feedback, SmallValuesComeThroughInTheMean) {
  const auto codec = make_codec("int4");
  std::vector<float> x(256, 0.003F);
  x[0] = 1;
  std::vector<std::byte> bytes = bytes_for(*codec, x.size());
  std::vector<float> residual(x.size(), 0.0F), with(x.size(), 0.0F), without(x.size(), 0.0F);
  constexpr int kSteps = 1000;
  for (int step = 0; step < kSteps; ++step) {
    encode_residual(*codec, x, residual, bytes);
    decode_residual(*codec, bytes, /*adds=*/true, with);
    encode_residual(*codec, x, {}, bytes);
    decode_residual(*codec, bytes, /*adds=*/true, without);
  }
  EXPECT_EQ(without[17], 0);
  EXPECT_NEAR(with[17], kSteps * 0.003, 1.0 / 7);  // but for less than a step
}

TEST(Feedback, ResidualIsWholeNumbersOf23BitsOnOneGrid) {
  std::vector<float> residual = codec_values(256, 3);
  const std::vector<float> before = residual;
  round_residual(residual);
  float largest = 0;
  for (const float one : residual) largest = std::max(largest, std::abs(one));
  int exponent = 0;
  std::frexp(largest, &exponent);
  for (std::size_t i = 0; i < residual.size(); ++i) {
    const float units = std::ldexp(residual[i], 22 - exponent);
    EXPECT_EQ(units, std::nearbyint(units)) << i;
    EXPECT_LT(std::abs(units), 1 << 23);
    EXPECT_NEAR(residual[i], before[i], std::ldexp(0.5F, exponent - 22));
  }
  std::vector<float> again = residual;
  round_residual(again);
  EXPECT_EQ(again, residual);
  std::vector<float> zeros(256, 0.0F);
  round_residual(zeros);
  EXPECT_EQ(zeros, std::vector<float>(256, 0.0F));
}

TEST(Feedback, ABlockThatIsNotFiniteIsToldAndLeavesTheResidual) {
  for (const char* name : {"int8", "int4"}) {
    const auto codec = make_codec(name);
    std::vector<float> x = codec_values(700, 4);
    x[300] = std::numeric_limits<float>::infinity();
    std::vector<float> residual = codec_values(700, 5);
    const std::vector<float> before = residual;
    std::vector<std::byte> bytes = bytes_for(*codec, x.size());
    encode_residual(*codec, x, residual, bytes);
    std::vector<float> sum(x.size(), 1);
    decode_residual(*codec, bytes, /*adds=*/true, sum);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const bool is_bad = i / 256 == 1;
      EXPECT_EQ(std::isnan(sum[i]), is_bad) << i;
      if (is_bad) {
        EXPECT_EQ(residual[i], before[i]);
      }
    }
  }
}

}  // namespace
}  // namespace atl::compress
