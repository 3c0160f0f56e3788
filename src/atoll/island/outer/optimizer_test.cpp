#include "atoll/island/outer/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/rng.h"

namespace atl::island {
namespace {

std::vector<float> values(std::size_t n, std::uint64_t seed) {
  const RngStream stream(seed, RngPurpose::kSynthetic);
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = to_uniform(stream.word(i)) - 0.5F;
  return x;
}

OuterOptimizerOptions options(const std::string& kind, double momentum = 0.9) {
  OuterOptimizerOptions result;
  result.kind = kind;
  result.momentum = momentum;
  return result;
}

// The formulas once more, in double.
struct InDouble {
  OuterOptimizerOptions options;
  std::vector<double> theta;
  std::vector<double> v = std::vector<double>(theta.size(), 0.0);
  std::vector<double> squares = v;

  void step(const std::vector<float>& delta, int k) {
    for (std::size_t i = 0; i < theta.size(); ++i) {
      const double d = delta[i];
      if (options.kind == "adam") {
        v[i] = options.beta1 * v[i] + (1 - options.beta1) * d;
        squares[i] = options.beta2 * squares[i] + (1 - options.beta2) * d * d;
        const double mean = v[i] / (1 - std::pow(options.beta1, k + 1));
        const double square = squares[i] / (1 - std::pow(options.beta2, k + 1));
        theta[i] -= options.lr * mean / (std::sqrt(square) + options.eps);
      } else {
        v[i] = options.momentum * v[i] + d;
        const bool is_nesterov = options.kind == "nesterov";
        theta[i] -= options.lr * (is_nesterov ? d + options.momentum * v[i] : v[i]);
      }
    }
  }
};

TEST(OuterOptimizer, StepsAreTheFormulasInDouble) {
  constexpr std::size_t kN = 1001;
  constexpr int kSteps = 12;
  for (const OuterOptimizerOptions& kind :
       {options("sgd", 0), options("sgd"), options("nesterov"), options("adam")}) {
    const auto optimizer = make_outer_optimizer(kind);
    std::vector<float> theta = values(kN, 1);
    InDouble right{kind, {theta.begin(), theta.end()}};
    std::vector<float> state(kN * static_cast<std::size_t>(optimizer->num_state_vectors()), 0.0F);
    for (int k = 0; k < kSteps; ++k) {
      const std::vector<float> delta = values(kN, 10 + static_cast<std::uint64_t>(k));
      optimizer->step(theta, delta, state, theta, state, {.k = k});
      right.step(delta, k);
    }
    // Momentum sums to at most 10 * 0.5, a step to lr * 5.5 of that size at most, and Adam's is lr
    // at most: every number is below 64, and each step rounds fewer than 10 times.
    const double bound = kSteps * 10 * 64 * 0x1p-24;
    for (std::size_t i = 0; i < kN; ++i) {
      ASSERT_NEAR(theta[i], right.theta[i], bound) << kind.kind << " " << i;
    }
  }
}

TEST(OuterOptimizer, WritesBesideOrInPlaceAndInPiecesAlike) {
  constexpr std::size_t kN = 1000;
  constexpr std::size_t kCut = 333;
  for (const char* kind : {"sgd", "nesterov", "adam"}) {
    const auto optimizer = make_outer_optimizer(options(kind));
    const auto vectors = static_cast<std::size_t>(optimizer->num_state_vectors());
    const std::vector<float> anchor = values(kN, 1);
    const std::vector<float> delta = values(kN, 2);
    std::vector<float> state = values(kN * vectors, 3);
    for (float& value : state) value = std::abs(value);
    std::vector<float> beside(kN);
    std::vector<float> state_beside(state.size());
    optimizer->step(anchor, delta, state, beside, state_beside, {.k = 4});

    std::vector<float> in_place = anchor;
    std::vector<float> state_in_place = state;
    optimizer->step(in_place, delta, state_in_place, in_place, state_in_place, {.k = 4});
    EXPECT_EQ(in_place, beside) << kind;
    EXPECT_EQ(state_in_place, state_beside) << kind;

    std::vector<float> piece(kCut);
    std::vector<float> piece_state;
    for (std::size_t v = 0; v < vectors; ++v) {
      piece_state.insert(piece_state.end(), state.begin() + static_cast<std::ptrdiff_t>(v * kN),
                         state.begin() + static_cast<std::ptrdiff_t>(v * kN + kCut));
    }
    optimizer->step(std::span(anchor).first(kCut), std::span(delta).first(kCut), piece_state, piece,
                    piece_state, {.k = 4});
    EXPECT_EQ(piece, std::vector<float>(beside.begin(), beside.begin() + kCut)) << kind;
  }
}

// n arrivals of a round move the anchor as one step of nesterov with their mean does, and so do the
// rounds after it.
TEST(OuterOptimizer, DelayedMomentumIsNesterovsInPieces) {
  constexpr std::size_t kN = 100;
  constexpr int kIslands = 4;
  OuterOptimizerOptions together = {.kind = "nesterov", .lr = 0.7, .momentum = 0.9};
  OuterOptimizerOptions delayed = together;
  delayed.kind = "delayed_nesterov";
  delayed.islands = kIslands;
  const auto whole = make_outer_optimizer(together);
  const auto pieces = make_outer_optimizer(delayed);
  EXPECT_EQ(pieces->num_state_vectors(), 2);
  std::vector<float> a = values(kN, 1);
  std::vector<float> b = a;
  std::vector<float> state_a(kN, 0.0F);
  std::vector<float> state_b(2 * kN, 0.0F);
  std::int64_t arrivals = 0;
  for (std::uint64_t round = 0; round < 5; ++round) {
    std::vector<float> mean(kN, 0.0F);
    // The second step of a round has two islands at once.
    for (const int count : {1, 2, 1}) {
      const std::vector<float> delta =
          values(kN, 10 + 10 * round + static_cast<std::uint64_t>(arrivals));
      for (std::size_t i = 0; i < kN; ++i) {
        mean[i] += delta[i] * static_cast<float>(count) / kIslands;
      }
      pieces->step(b, delta, state_b, b, state_b, {.arrivals = arrivals, .contributions = count});
      arrivals += count;
    }
    whole->step(a, mean, state_a, a, state_a, {});
    for (std::size_t i = 0; i < kN; ++i) ASSERT_NEAR(a[i], b[i], 1e-4) << round;
  }
}

TEST(OuterOptimizer, NaiveMomentumOvershoots) {
  OuterOptimizerOptions options = {
      .kind = "naive_nesterov", .lr = 1, .momentum = 0.9, .islands = 4};
  const auto naive = make_outer_optimizer(options);
  options.kind = "delayed_nesterov";
  const auto delayed = make_outer_optimizer(options);
  std::vector<float> a = {0};
  std::vector<float> b = {0};
  std::vector<float> state_a = {0};
  std::vector<float> state_b = {0, 0};
  const std::vector<float> delta = {1};
  for (std::int64_t k = 0; k < 8; ++k) {
    naive->step(a, delta, state_a, a, state_a, {.arrivals = k});
    delayed->step(b, delta, state_b, b, state_b, {.arrivals = k});
  }
  EXPECT_NEAR(b[0], -(1.9 + 2.71), 1e-5);  // two steps of nesterov
  EXPECT_LT(a[0], 1.5 * b[0]);
}

TEST(OuterOptimizer, AStepMayHaveALearningRateOfItsOwn) {
  for (const char* kind : {"sgd", "nesterov", "adam"}) {
    OuterOptimizerOptions usual = options(kind);
    OuterOptimizerOptions other = usual;
    other.lr = 0.123;
    const auto a = make_outer_optimizer(usual);
    const auto b = make_outer_optimizer(other);
    const std::vector<float> anchor = values(10, 1);
    const std::vector<float> delta = values(10, 2);
    const std::vector<float> state(10 * static_cast<std::size_t>(a->num_state_vectors()), 0.5F);
    std::vector<float> state_out = state;
    std::vector<float> out_a(10);
    std::vector<float> out_b(10);
    a->step(anchor, delta, state, out_a, state_out, {.lr = 0.123});
    b->step(anchor, delta, state, out_b, state_out, {});
    EXPECT_EQ(out_a, out_b) << kind;
  }
}

TEST(OuterOptimizer, WithoutMomentumThereIsNoState) {
  EXPECT_EQ(make_outer_optimizer(options("sgd", 0))->num_state_vectors(), 0);
  EXPECT_EQ(make_outer_optimizer(options("nesterov", 0))->num_state_vectors(), 0);
  EXPECT_EQ(make_outer_optimizer(options("nesterov"))->num_state_vectors(), 1);
  EXPECT_EQ(make_outer_optimizer(options("adam"))->num_state_vectors(), 2);
}

TEST(OuterOptimizer, WrongOptionsAreNamed) {
  const auto message = [](const OuterOptimizerOptions& wrong) {
    try {
      make_outer_optimizer(wrong);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUser);
      return std::string(error.what());
    }
    return std::string();
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(message(options("lion")), testing::HasSubstr("sgd, nesterov or adam"));
  EXPECT_THAT(message(options("sgd", 1)), testing::HasSubstr("momentum"));
  EXPECT_THAT(message(options("nesterov", nan)), testing::HasSubstr("momentum"));
  EXPECT_THAT(message({.lr = 0}), testing::HasSubstr("lr"));
  EXPECT_THAT(message({.lr = std::numeric_limits<double>::infinity()}), testing::HasSubstr("lr"));
  EXPECT_THAT(message({.kind = "adam", .beta1 = 1}), testing::HasSubstr("beta1"));
  EXPECT_THAT(message({.kind = "adam", .beta2 = -0.1}), testing::HasSubstr("beta2"));
  EXPECT_THAT(message({.kind = "adam", .eps = 0}), testing::HasSubstr("eps"));
}

}  // namespace
}  // namespace atl::island
