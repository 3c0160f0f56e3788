#include "atoll/base/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace atl {
namespace {

using Words = std::array<std::uint32_t, 4>;

// The known answers of Random123 (kat_vectors, philox4x32 10).
TEST(Philox, GivesRandom123sKnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({~0U, ~0U, ~0U, ~0U}, {~0U, ~0U}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RngStream, DiffersInEveryPartOfItsName) {
  std::set<Words> blocks;
  int streams = 0;
  for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 32}) {
    for (const RngPurpose purpose : {RngPurpose::kInit, RngPurpose::kDropout}) {
      for (const std::uint64_t a : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 32}) {
        for (const std::uint64_t b : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 32}) {
          blocks.insert(RngStream(seed, purpose, a, b).block(0));
          ++streams;
        }
      }
    }
  }
  EXPECT_EQ(blocks.size(), static_cast<std::size_t>(streams));
}

TEST(RngStream, WordsAreThoseOfItsBlocks) {
  const RngStream stream(7, RngPurpose::kInit);
  for (const std::uint64_t i : {std::uint64_t{0}, std::uint64_t{5}, std::uint64_t{1} << 40}) {
    EXPECT_EQ(stream.word(i), stream.block(i / 4)[i % 4]);
  }
  EXPECT_NE(stream.block(1), stream.block(1 + (std::uint64_t{1} << 32)));
}

TEST(RngStream, UniformStaysBelowOneAndIsEven) {
  EXPECT_EQ(to_uniform(0), 0.0F);
  EXPECT_LT(to_uniform(~0U), 1.0F);
  const RngStream stream(7, RngPurpose::kInit);
  constexpr int kN = 1 << 16;
  double sum = 0;
  for (int i = 0; i < kN; ++i) sum += stream.uniform(static_cast<std::uint64_t>(i));
  EXPECT_NEAR(sum / kN, 0.5, 5 * std::sqrt(1.0 / 12 / kN));  // five standard errors
}

// The k-th sample moment of N standard normals has standard error sqrt((E x^2k - (E x^k)^2) / N).
TEST(RngStream, NormalHasTheMomentsOfAStandardNormal) {
  const RngStream stream(11, RngPurpose::kInit, 3);
  constexpr int kN = 1 << 18;
  double moments[5] = {};
  double product = 0;
  double before = stream.normal(kN);
  for (int i = 0; i < kN; ++i) {
    const double x = stream.normal(static_cast<std::uint64_t>(i));
    ASSERT_TRUE(std::isfinite(x));
    for (int k = 1; k <= 4; ++k) moments[k] += std::pow(x, k) / kN;
    product += x * before / kN;
    before = x;
  }
  const double error = 5 / std::sqrt(static_cast<double>(kN));
  EXPECT_NEAR(moments[1], 0, error);
  EXPECT_NEAR(moments[2], 1, error * std::sqrt(2.0));
  EXPECT_NEAR(moments[3], 0, error * std::sqrt(15.0));
  EXPECT_NEAR(moments[4], 3, error * std::sqrt(96.0));
  EXPECT_NEAR(product, 0, error) << "neighbours depend on each other";
}

}  // namespace
}  // namespace atl
