#include "atoll/data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "atoll/data/testing.h"

namespace atl::data {
namespace {

TEST(Permutation, TakesEveryValueOnceForEverySizeToAThousand) {
  for (std::uint64_t n = 1; n <= 1000; ++n) {
    const Permutation permutation(RngStream(n % 7, RngPurpose::kShuffle, n % 3), n);
    std::vector<bool> seen(n, false);
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t value = permutation(i);
      ASSERT_LT(value, n);
      ASSERT_FALSE(seen[value]) << value << " twice of " << n;
      seen[value] = true;
    }
  }
}

TEST(Permutation, StaysInRangeForLargeSizes) {
  for (const std::uint64_t n : {(std::uint64_t{1} << 40) + 1, std::uint64_t{1} << 62}) {
    const Permutation permutation(RngStream(1, RngPurpose::kShuffle), n);
    std::set<std::uint64_t> seen;
    for (std::uint64_t i = 0; i < 1000; ++i) {
      const std::uint64_t value = permutation(n - 1 - i);
      EXPECT_LT(value, n);
      EXPECT_TRUE(seen.insert(value).second);
    }
  }
}

// The mean displacement of a random permutation of n is n / 3 with standard deviation below
// 0.3 sqrt(n); neighbours stay neighbours about twice per permutation.
TEST(Permutation, LooksRandom) {
  constexpr std::uint64_t kN = 10000;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const Permutation permutation(RngStream(seed, RngPurpose::kShuffle), kN);
    double moved = 0;
    int neighbours = 0;
    for (std::uint64_t i = 0; i < kN; ++i) {
      const auto here = static_cast<double>(permutation(i));
      moved += std::abs(here - static_cast<double>(i));
      if (i + 1 < kN) {
        neighbours += std::abs(here - static_cast<double>(permutation(i + 1))) == 1 ? 1 : 0;
      }
    }
    EXPECT_NEAR(moved / kN, kN / 3.0, 5 * 0.3 * 100);
    EXPECT_LT(neighbours, 12);
  }
}

TEST(Sampler, EpochTakesEveryWindowOnceInsideTheTokens) {
  for (const std::int64_t num_tokens : {65, 66, 127, 128, 129, 1000, 4096}) {
    const Sampler sampler(5, num_tokens, 64);
    for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
      std::set<std::int64_t> first_tokens;
      for (std::int64_t i = 0; i < sampler.num_windows(); ++i) {
        const SampleRef ref = sampler.sample(epoch * sampler.num_windows() + i);
        EXPECT_EQ(ref.epoch, epoch);
        EXPECT_LE(ref.first_token + 64 + 1, num_tokens);
        EXPECT_GE(ref.first_token, 0);
        first_tokens.insert(ref.first_token);
      }
      ASSERT_EQ(static_cast<std::int64_t>(first_tokens.size()), sampler.num_windows());
      EXPECT_EQ(*first_tokens.rbegin() - *first_tokens.begin(), (sampler.num_windows() - 1) * 64);
    }
    EXPECT_GE(sampler.num_windows() * 64, std::max<std::int64_t>(64, num_tokens - 2 * 64 + 1));
  }
}

std::vector<std::int64_t> epoch_of(const Sampler& sampler, std::int64_t epoch) {
  std::vector<std::int64_t> tokens;
  for (std::int64_t i = 0; i < sampler.num_windows(); ++i) {
    tokens.push_back(sampler.sample(epoch * sampler.num_windows() + i).first_token);
  }
  return tokens;
}

TEST(Sampler, EpochsAndSeedsDifferInOrderAndOffset) {
  const Sampler sampler(5, 10000, 64);
  const Sampler other(6, 10000, 64);
  std::set<std::vector<std::int64_t>> orders;
  std::set<std::int64_t> offsets;
  for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
    orders.insert(epoch_of(sampler, epoch));
    orders.insert(epoch_of(other, epoch));
    offsets.insert(epoch_of(sampler, epoch).front() % 64);
  }
  EXPECT_EQ(orders.size(), 40U);
  EXPECT_GT(offsets.size(), 10U);
}

TEST(Sampler, RefusesAContextLongerThanTheDataSayingHowLongThatIs) {
  EXPECT_EQ(Sampler(1, 65, 64).num_windows(), 1);
  EXPECT_THAT(
      testing::error_of([] { Sampler(1, 64, 64); }),
      ::testing::AllOf(::testing::HasSubstr("context of 64"), ::testing::HasSubstr("there are 64"),
                       ::testing::HasSubstr("(train.context)")));
  EXPECT_THAT(testing::error_of([] { Sampler(1, 64, 0); }), ::testing::HasSubstr("at least 1"));
}

// Computed by tools/golden/data_order.py, which shares nothing with this code but
// docs/data-order.md.
TEST(Sampler, AgreesWithTheIndependentImplementation) {
  struct Known {
    std::uint64_t seed;
    std::int64_t num_tokens, context, index, epoch, window, first_token;
  };
  constexpr Known kKnown[] = {
#include "atoll/data/sampler_known_values.inc"
  };
  for (const Known& known : kKnown) {
    const SampleRef ref = Sampler(known.seed, known.num_tokens, known.context).sample(known.index);
    EXPECT_EQ(ref.epoch, known.epoch) << known.index;
    EXPECT_EQ(ref.window, known.window) << known.index;
    EXPECT_EQ(ref.first_token, known.first_token) << known.index;
  }
}

}  // namespace
}  // namespace atl::data
