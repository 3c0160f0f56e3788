// The router on the fake GPU, against ref in double.

#include "atoll/ops/routing/routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "atoll/ops/cuda/testing.h"

namespace atl::ops {
namespace {

using test::Gpu;
using test::OwnedTensor;
using test::random_tensor;

const auto kDiffers = [](std::uint64_t order) { ADD_FAILURE() << "other bits in order " << order; };

struct Case {
  std::int64_t tokens, num_experts, k;
};
// Experts that fill a warp's lanes, and that do not; tokens that fill blocks and that do not.
const Case kCases[] = {{1, 1, 1}, {5, 7, 3}, {70, 40, 2}, {9, 33, 33}, {131, 8, 2}};

template <typename T>
struct Router {
  OwnedTensor<T> logits;
  OwnedTensor<std::int32_t> experts, places;
  OwnedTensor<T> weights, dweights, dlogits;
  OwnedTensor<double> counts, sums;
  bool operator==(const Router&) const = default;
};

template <typename T>
Router<T> make_router(const Case& c) {
  const Shape choices = {c.tokens, c.k}, all = {c.tokens, c.num_experts};
  Router<T> o = {random_tensor<T>(all, 1, 4.0F),
                 OwnedTensor<std::int32_t>(choices, -7),
                 test::random_tokens(choices, 5, 2),
                 OwnedTensor<T>(choices, T(1e30)),
                 random_tensor<T>(choices, 3),
                 OwnedTensor<T>(all, T(1e30)),
                 OwnedTensor<double>({c.num_experts}, 1e30),
                 OwnedTensor<double>({c.num_experts + 4}, 0.5)};
  for (std::int32_t& place : o.places.values) place -= 1;
  // Equal logits, among the largest.
  for (std::int64_t t = 0; t < c.tokens; t += 3) {
    o.logits[t * c.num_experts] = o.logits[(t + 1) * c.num_experts - 1] = 3;
  }
  return o;
}

template <typename T, typename Bring>
void use_router(Run& run, bool normalize, const RouterLosses& losses, Router<T>& o, Bring&& at,
                OwnedTensor<double>* load = nullptr) {
  const Tensor logits = at(o.logits), experts = at(o.experts), weights = at(o.weights);
  const Tensor counts = load == nullptr ? Tensor() : at(*load);
  RouterLosses with_load = losses;
  with_load.counts = counts;
  route_tokens(run, normalize, logits, experts, weights);
  route_tokens_backward(run, normalize, with_load, logits, experts, weights, at(o.dweights),
                        at(o.dlogits));
  count_choices(run, experts, at(o.counts));
  add_router_sums(run, logits, experts, at(o.places), at(o.sums), counts);
}

void check_router(const Case& c, bool normalize, const RouterLosses& losses,
                  OwnedTensor<double>* load = nullptr) {
  SCOPED_TRACE(fmt::format("{} tokens, {} of {}, normalize {}, {} {}", c.tokens, c.k, c.num_experts,
                           normalize, losses.balance, losses.z));
  const Router<float> start = make_router<float>(c);
  const Router<float> got = test::in_every_order(
      start,
      [&](Gpu& gpu, Router<float>& o) {
        use_router(
            gpu.run, normalize, losses, o, [&](auto& x) { return gpu(x); }, load);
      },
      kDiffers);
  Router<double> exact = make_router<double>(c);
  test::TestRun host;
  use_router(
      host.run, normalize, losses, exact, [](auto& x) { return x.view(); }, load);
  EXPECT_EQ(got.experts, exact.experts);
  EXPECT_EQ(got.counts, exact.counts);
  // Exponentials of arguments below 8, each off by 8 eps and two units in the last place, in sums
  // of at most 40 terms.
  constexpr double kEps = 0x1p-24;
  EXPECT_LE(test::max_abs_difference(got.weights, exact.weights), 40 * kEps);
  const double scale = 1 + test::max_abs(exact.dlogits);
  EXPECT_LE(test::max_abs_difference(got.dlogits, exact.dlogits), 200 * kEps * scale);
  for (std::int64_t i = 0; i < exact.sums.size(); ++i) {
    EXPECT_NEAR(got.sums[i], exact.sums[i], 100 * kEps * exact.sums[i]) << i;
  }
}

TEST(CudaRouter, MatchesRefInDouble) {
  for (const Case& c : kCases) {
    for (const bool normalize : {false, true}) {
      check_router(c, normalize, {.balance = 0.7, .z = 0.3});
    }
  }
  check_router(kCases[1], true, {});
  check_router(kCases[1], false, {.z = 0.3});
}

TEST(CudaRouter, BalancesByTheCountsThatAreGiven) {
  auto load = random_tensor<double>({7}, 9);
  for (double& count : load.values) count = std::round(std::abs(count) * 50);
  check_router(kCases[1], true, {.balance = 0.7}, &load);
}

TEST(CudaRouter, HugeLogitsOverflowNothingAndANanIsSeen) {
  constexpr std::int64_t kExperts = 40, kTopK = 3;
  struct Routed {
    OwnedTensor<float> logits;
    OwnedTensor<std::int32_t> experts;
    OwnedTensor<float> weights;
    bool operator==(const Routed& other) const { return experts == other.experts; }
  };
  Routed start = {OwnedTensor<float>({3, kExperts}, -3e38F), OwnedTensor<std::int32_t>({3, kTopK}),
                  OwnedTensor<float>({3, kTopK})};
  start.logits[35] = 3e38F;
  start.logits[kExperts + 37] = std::nanf("");
  for (std::int64_t e = 0; e < kExperts; ++e) start.logits[2 * kExperts + e] = std::nanf("");
  const Routed got = test::in_every_order(
      start,
      [](Gpu& gpu, Routed& r) {
        route_tokens(gpu.run, true, gpu(r.logits), gpu(r.experts), gpu(r.weights));
      },
      kDiffers);
  EXPECT_EQ(got.experts.values, (std::vector<std::int32_t>{35, 0, 1, 37, 0, 1, 0, 1, 2}));
  EXPECT_EQ(got.weights[0], 1);
  EXPECT_EQ(got.weights[1], 0);
  for (std::int64_t i = kTopK; i < 3 * kTopK; ++i) EXPECT_TRUE(std::isnan(got.weights[i])) << i;
}

TEST(CudaRouter, NeedsNoMoreScratchThanItSays) {
  for (const Case& c : {Case{700, 3, 2}, Case{40, 40, 1}}) {
    Router<float> o = make_router<float>(c);
    Gpu gpu(0, routing_scratch_bytes(o.experts.shape, c.num_experts));
    use_router(gpu.run, true, {.balance = 1}, o, [&](auto& x) { return gpu(x); });
    gpu.finish();
  }
}

}  // namespace
}  // namespace atl::ops
