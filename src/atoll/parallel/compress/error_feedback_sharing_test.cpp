#include "atoll/parallel/compress/error_feedback_sharing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "atoll/base/rng.h"
#include "atoll/compress/feedback.h"
#include "atoll/parallel/layout/flat_layout.h"

namespace atl::parallel {
namespace {

using Vectors = std::vector<std::vector<float>>;

// Residuals of ranks, at scales of their own that differ by up to 2^`spread`.
Vectors residual_of(int ranks, std::size_t n, int spread) {
  Vectors all;
  for (int r = 0; r < ranks; ++r) {
    const RngStream stream(7, RngPurpose::kSynthetic, static_cast<std::uint64_t>(r));
    std::vector<float>& one = all.emplace_back(n);
    for (std::size_t i = 0; i < n; ++i) {
      const auto shift = static_cast<int>((i / 256 + static_cast<std::size_t>(r)) %
                                          static_cast<std::size_t>(spread + 1));
      one[i] = std::ldexp(stream.normal(i), -shift);
    }
    for (std::size_t i = 0; i < n; i += 256) {
      compress::round_residual({one.data() + i, std::min<std::size_t>(256, n - i)});
    }
  }
  return all;
}

Vectors shared(const Vectors& old, int ranks) {
  const std::vector<std::span<const float>> views(old.begin(), old.end());
  Vectors all;
  for (int r = 0; r < ranks; ++r) {
    share_residual(views, ranks, r, 0, all.emplace_back(old.front().size()));
  }
  return all;
}

double sum(const Vectors& all, std::size_t i) {
  double result = 0;
  for (const std::vector<float>& one : all) result += static_cast<double>(one[i]);
  return result;
}

TEST(ResidualSharing, TheSumIsConservedExactly) {
  constexpr std::size_t kElements = 3 * kBlockElements + 100;
  for (const auto& [before, after] :
       std::vector<std::pair<int, int>>{{4, 2}, {2, 4}, {3, 2}, {8, 2}, {8, 3}, {4, 4}, {2, 3}}) {
    const Vectors old = residual_of(before, kElements, 20);
    const Vectors now = shared(old, after);
    ASSERT_EQ(std::ssize(now), after);
    for (std::size_t i = 0; i < kElements; ++i) {
      ASSERT_EQ(sum(now, i), sum(old, i)) << before << " to " << after << ", element " << i;
    }
  }
}

TEST(ResidualSharing, AsManyRanksKeepWhatIsTheirs) {
  const Vectors old = residual_of(3, 1000, 4);
  EXPECT_EQ(shared(old, 3), old);
  const Vectors more = shared(old, 5);
  EXPECT_EQ(more[2], old[2]);
  EXPECT_EQ(more[4], std::vector<float>(1000, 0.0F));
}

TEST(ResidualSharing, NoRankOwesNearlyAllOfIt) {
  constexpr std::size_t kElements = 4 * kBlockElements;
  const Vectors now = shared(residual_of(4, kElements, 0), 2);
  double sizes[2] = {};
  for (int r = 0; r < 2; ++r) {
    for (const float one : now[static_cast<std::size_t>(r)]) sizes[r] += std::abs(one);
  }
  EXPECT_NEAR(sizes[0] / sizes[1], 1, 0.05);
}

}  // namespace
}  // namespace atl::parallel
