#include "atoll/ops/rope/rope.h"

#include <gtest/gtest.h>

#include "atoll/ops/rope/ref.h"
#include "atoll/ops/testing.h"

namespace atl::ops {
namespace {

using test::OwnedTensor;
using test::random_tensor;
using test::TestRun;

constexpr RotaryPairs kPairs[] = {RotaryPairs::kHalves, RotaryPairs::kNeighbours};

struct Case {
  HeadLayout heads;
  std::int64_t rotated;  ///< R
};
constexpr Case kCases[] = {{{1, 1, 2}, 2},   {{3, 1, 6}, 6},   {{4, 2, 34}, 34}, {{2, 2, 64}, 64},
                           {{1, 1, 3}, 2},   {{2, 1, 34}, 18}, {{4, 2, 64}, 32}, {{3, 1, 128}, 96},
                           {{2, 2, 80}, 20}, {{2, 1, 33}, 32}};

// Rows of cos then sin of the angles position * 10000^(-2i / rotated).
template <typename T>
OwnedTensor<T> make_table(std::int64_t positions, std::int64_t rotated) {
  OwnedTensor<T> table({positions, rotated});
  const std::int64_t half = rotated / 2;
  for (std::int64_t p = 0; p < positions; ++p) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = p * std::pow(10000.0, -2.0 * i / rotated);
      table[p * rotated + i] = static_cast<T>(static_cast<float>(std::cos(angle)));
      table[p * rotated + half + i] = static_cast<T>(static_cast<float>(std::sin(angle)));
    }
  }
  return table;
}

// B sequences of T rows, from position `first` on.
OwnedTensor<std::int32_t> positions_from(std::int32_t first, std::int64_t B, std::int64_t T) {
  OwnedTensor<std::int32_t> positions({B, T});
  for (std::int64_t row = 0; row < B * T; ++row) {
    positions[row] = first + static_cast<std::int32_t>(row % T);
  }
  return positions;
}

// Rotates the same values by a vector's code and by ref in double; returns the largest difference.
template <typename T>
double difference(const Case& c, RotaryPairs pairs, bool inverse) {
  TestRun run;
  auto fast = random_tensor<T>({2, 19, c.heads.qkv_width()}, 1);
  auto exact = fast.template as<double>();
  auto table = make_table<float>(24, c.rotated);
  auto table_in_double = make_table<double>(24, c.rotated);
  auto positions = positions_from(5, 2, 19);
  rope(run, c.heads, table, positions, inverse, fast, pairs);
  ref::rope<double>(c.heads, table_in_double, positions, inverse, exact, pairs);
  return test::max_abs_difference(fast, exact);
}

TEST(Rope, MatchesRefInDouble) {
  for (const Case& c : kCases) {
    for (const RotaryPairs pairs : kPairs) {
      for (const bool inverse : {false, true}) {
        // Two products of at most 1, each rounded, and their sum.
        EXPECT_LE(difference<float>(c, pairs, inverse), 2 * 0x1p-23);
        // Sums below 2 are stored to half of 2^-7.
        EXPECT_LE(difference<Bf16>(c, pairs, inverse), 0x1p-8 + 2 * 0x1p-23);
      }
    }
  }
}

TEST(Rope, LeavesWhatFollowsTheRotatedElementsOfAHead) {
  TestRun run;
  for (const Case& c : kCases) {
    for (const RotaryPairs pairs : kPairs) {
      const auto before = random_tensor<float>({2, 19, c.heads.qkv_width()}, 1);
      auto after = before;
      auto table = make_table<float>(24, c.rotated);
      auto positions = positions_from(5, 2, 19);
      rope(run, c.heads, table, positions, false, after, pairs);
      for (std::int64_t i = 0; i < after.size(); ++i) {
        const std::int64_t in_row = i % c.heads.qkv_width();
        const bool stays = in_row % c.heads.head_dim >= c.rotated ||
                           in_row >= c.heads.query_width() + c.heads.kv_width();
        EXPECT_EQ(after[i] == before[i], stays) << i;
      }
      rope(run, c.heads, table, positions, true, after, pairs);
      // Each rotation rounds as above, and cos^2 + sin^2 is 1 to a few of these errors.
      EXPECT_LE(test::max_abs_difference(after, before), 8 * 0x1p-23);
    }
  }
}

TEST(Rope, NeighboursAreTheHalvesOfAnotherOrder) {
  TestRun run;
  const HeadLayout heads{2, 1, 42};
  constexpr std::int64_t kRotated = 38;
  const auto x = random_tensor<float>({1, 5, heads.qkv_width()}, 1);
  // Element 2i of `x` is element i of `halves`, and 2i + 1 is i + 19.
  const auto reordered = [&](const OwnedTensor<float>& from) {
    auto to = from;
    for (std::int64_t i = 0; i < from.size(); ++i) {
      const std::int64_t in_head = i % heads.qkv_width() % heads.head_dim;
      if (in_head < kRotated) to[i - in_head + in_head / 2 + in_head % 2 * kRotated / 2] = from[i];
    }
    return to;
  };
  auto table = make_table<float>(5, kRotated);
  auto neighbours = x;
  rope(run, heads, table, {}, false, neighbours, RotaryPairs::kNeighbours);
  auto halves = reordered(x);
  rope(run, heads, table, {}, false, halves);
  EXPECT_EQ(reordered(neighbours), halves);
}

TEST(Rope, IsARotationByThePositionOfQueriesAndKeysAlone) {
  TestRun run;
  const HeadLayout heads{2, 1, 4};  // 2 query heads, 1 key head, 1 value head
  OwnedTensor<double> qkv({1, 3, heads.qkv_width()}, 1.0);
  auto table = make_table<double>(3, heads.head_dim);
  rope(run, heads, table, {}, false, qkv);
  for (std::int64_t t = 0; t < 3; ++t) {
    for (std::int64_t head = 0; head < 4; ++head) {
      for (std::int64_t i = 0; i < 2; ++i) {
        const double angle = head == 3 ? 0 : t * (i == 0 ? 1.0 : 0.01);
        const std::int64_t at = t * heads.qkv_width() + head * 4 + i;
        EXPECT_NEAR(qkv[at], std::cos(angle) - std::sin(angle), 1e-6);
        EXPECT_NEAR(qkv[at + 2], std::cos(angle) + std::sin(angle), 1e-6);
      }
    }
  }
}

// The rotation is linear and orthogonal: its gradient is its transpose, which is its inverse.
TEST(Rope, InverseIsTheGradient) {
  TestRun run;
  const HeadLayout heads{3, 1, 6};
  for (const RotaryPairs pairs : kPairs) {
    for (const std::int64_t rotated : {4, 6}) {
      auto x = random_tensor<double>({1, 4, heads.qkv_width()}, 1);
      const auto dy = random_tensor<double>({1, 4, heads.qkv_width()}, 2);
      auto table = make_table<double>(7, rotated);
      auto dx = dy;
      auto positions = positions_from(2, 1, 4);
      rope(run, heads, table, positions, true, dx, pairs);
      const auto loss = [&] {
        auto y = x;
        rope(run, heads, table, positions, false, y, pairs);
        return test::dot(dy, y);
      };
      EXPECT_LE(test::max_relative_error(dx, test::finite_difference(x, loss)), 1e-8);
    }
  }
}

TEST(Rope, ThreadCountChangesNoBit) {
  const HeadLayout heads{4, 2, 34};
  auto table = make_table<float>(70, heads.head_dim);
  OwnedTensor<float> results[3];
  for (int threads = 1; threads <= 3; ++threads) {
    TestRun run(threads);
    results[threads - 1] = random_tensor<float>({3, 65, heads.qkv_width()}, 1);
    rope(run, heads, table, {}, false, results[threads - 1]);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST(Rope, PositionsRestartWithEachDocument) {
  const HeadLayout heads{2, 1, 6};
  OwnedTensor<std::int32_t> positions({2, 6});
  positions.values = {0, 1, 0, 0, 1, 2, 0, 0, 1, 2, 3, 0};
  auto table = make_table<float>(6, heads.head_dim);
  TestRun run;
  const auto x = random_tensor<float>({2, 6, heads.qkv_width()}, 1);
  auto packed = x;
  rope(run, heads, table, positions, false, packed);
  const std::int64_t width = heads.qkv_width();
  for (std::int64_t row = 0; row < 12; ++row) {
    OwnedTensor<float> alone({1, 1, width});
    std::copy_n(x.values.begin() + row * width, width, alone.values.begin());
    auto position = positions_from(positions[row], 1, 1);
    rope(run, heads, table, position, false, alone);
    EXPECT_TRUE(
        std::equal(alone.values.begin(), alone.values.end(), packed.values.begin() + row * width))
        << row;
  }
}

TEST(Rope, RefusesATableThatDoesNotFitTheHeads) {
  TestRun run;
  const HeadLayout heads{1, 1, 4};
  OwnedTensor<float> qkv({1, 4, heads.qkv_width()});
  for (const std::int64_t rotated : {0, 3, 6}) {
    OwnedTensor<float> table({4, rotated});
    EXPECT_THROW(rope(run, heads, table, {}, false, qkv), Error) << rotated;
  }
}

TEST(Rope, RefusesPositionsBeyondTheTable) {
  TestRun run;
  const HeadLayout heads{1, 1, 4};
  auto table = make_table<float>(8, 4);
  OwnedTensor<float> qkv({1, 4, heads.qkv_width()});
  for (const auto& [first, fits] : {std::pair{4, true}, {5, false}, {-1, false}}) {
    auto positions = positions_from(first, 1, 4);
    if (fits) {
      EXPECT_NO_THROW(rope(run, heads, table, positions, false, qkv));
    } else {
      EXPECT_THROW(rope(run, heads, table, positions, false, qkv), Error) << first;
    }
  }
  // Rows longer than the table are fine as long as their documents are not.
  auto small = make_table<float>(2, 4);
  EXPECT_THROW(rope(run, heads, small, {}, false, qkv), Error);
  OwnedTensor<std::int32_t> packed({1, 4});
  packed.values = {0, 1, 0, 1};
  EXPECT_NO_THROW(rope(run, heads, small, packed, false, qkv));
  auto wrong_shape = positions_from(0, 1, 3);
  EXPECT_THROW(rope(run, heads, table, wrong_shape, false, qkv), Error);
}

}  // namespace
}  // namespace atl::ops
