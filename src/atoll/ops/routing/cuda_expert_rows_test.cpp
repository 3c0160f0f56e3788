// The rows of experts on the fake GPU. Counts and copies are exact, sums over choices have the
// order of ref: so all is compared bit for bit, but for the gradients of weights.

#include "atoll/ops/routing/expert_rows.h"

#include <gtest/gtest.h>

#include "atoll/ops/cuda/testing.h"

namespace atl::ops {
namespace {

using test::Gpu;
using test::OwnedTensor;
using test::random_tensor;
using test::random_tokens;

const auto kDiffers = [](std::uint64_t order) { ADD_FAILURE() << "other bits in order " << order; };
using Indices = OwnedTensor<std::int32_t>;

struct Assigned {
  Indices experts, places, sources, offsets;
  bool operator==(const Assigned&) const = default;
};

// No choice is expert number 1 of several.
Assigned unassigned(std::int64_t tokens, std::int64_t k, std::int64_t num_experts) {
  Assigned a = {random_tokens({tokens, k}, num_experts, 1), Indices({tokens, k}, -7),
                Indices({tokens * k}, -7), Indices({num_experts + 1}, -7)};
  for (std::int32_t& e : a.experts.values) {
    if (e == 1) e = 0;
  }
  return a;
}

void assign_on_host(Assigned& a, std::int64_t capacity) {
  test::TestRun host;
  assign_rows(host.run, a.experts, capacity, a.places, a.sources, a.offsets);
}

TEST(CudaAssignRows, GivesTheRowsOfTheCpu) {
  // One part of 512 choices and several; experts that one warp scans, and more than a block has
  // threads; 33 parts and more, which a warp scans in two turns.
  for (const auto& [tokens, k, num_experts] :
       {std::tuple<std::int64_t, std::int64_t, std::int64_t>{1, 1, 1},
        {4, 2, 3},
        {300, 2, 5},
        {70, 8, 130},
        {1700, 10, 3}}) {
    for (const std::int64_t capacity : {tokens, (tokens * k + num_experts) / num_experts / 2 + 1}) {
      SCOPED_TRACE(fmt::format("{} x {} of {}, {} each", tokens, k, num_experts, capacity));
      Assigned start = unassigned(tokens, k, num_experts);
      const Assigned got = test::in_every_order(
          start,
          [&, most = capacity](Gpu& gpu, Assigned& a) {
            assign_rows(gpu.run, gpu(a.experts), most, gpu(a.places), gpu(a.sources),
                        gpu(a.offsets));
          },
          kDiffers);
      assign_on_host(start, capacity);
      EXPECT_EQ(got.offsets, start.offsets);
      EXPECT_EQ(got.places, start.places);
      EXPECT_EQ(got.sources, start.sources);
    }
  }
}

TEST(CudaAssignRows, NeedsNoMoreScratchThanItSays) {
  Assigned a = unassigned(700, 2, 5);
  Gpu gpu(0, assign_rows_scratch_bytes(1400, 5));
  assign_rows(gpu.run, gpu(a.experts), 700, gpu(a.places), gpu(a.sources), gpu(a.offsets));
  gpu.finish();
}

template <typename T>
struct Rows {
  Indices places, sources;
  OwnedTensor<float> weights;
  OwnedTensor<T> x, rows, y, plain, dh, h, d;
  OwnedTensor<float> dweights;
  bool operator==(const Rows&) const = default;
};

template <typename T>
Rows<T> make_rows(std::int64_t tokens, std::int64_t k, std::int64_t width, std::int64_t inner) {
  constexpr std::int64_t kExperts = 3;
  Assigned a = unassigned(tokens, k, kExperts);
  assign_on_host(a, tokens / 2 + 1);  // some choices have no row, and some rows no choice
  const std::int64_t choices = tokens * k;
  return {a.places,
          a.sources,
          random_tensor<float>({tokens, k}, 2),
          random_tensor<T>({tokens, width}, 3),
          OwnedTensor<T>({choices, width}, test::number<T>(1e30)),
          OwnedTensor<T>({tokens, width}, test::number<T>(1e30)),
          OwnedTensor<T>({tokens, width}, test::number<T>(1e30)),
          random_tensor<T>({choices, inner}, 4),
          random_tensor<T>({choices, inner}, 5),
          random_tensor<T>({choices, width}, 6),
          OwnedTensor<float>({tokens, k}, 1e30F)};
}

template <typename T, typename Bring>
void use_rows(Run& run, Rows<T>& o, Bring&& at) {
  const Tensor places = at(o.places), sources = at(o.sources), weights = at(o.weights);
  const Tensor rows = at(o.rows);
  gather_rows(run, at(o.x), sources, rows);
  combine_rows(run, rows, places, weights, at(o.y));
  combine_rows(run, rows, places, {}, at(o.plain));
  weigh_rows(run, weights, sources, at(o.dh), at(o.h), at(o.d), at(o.dweights));
}

template <typename T>
void check_rows(std::int64_t tokens, std::int64_t k, std::int64_t width, std::int64_t inner) {
  SCOPED_TRACE(fmt::format("{} x {}, {} and {} wide", tokens, k, width, inner));
  Rows<T> start = make_rows<T>(tokens, k, width, inner);
  const Rows<T> got = test::in_every_order(
      start, [](Gpu& gpu, Rows<T>& o) { use_rows(gpu.run, o, [&](auto& x) { return gpu(x); }); },
      kDiffers);
  test::TestRun host;
  use_rows(host.run, start, [](auto& x) { return x.view(); });
  EXPECT_EQ(got.rows, start.rows);
  EXPECT_EQ(got.y, start.y);
  EXPECT_EQ(got.plain, start.plain);
  EXPECT_EQ(got.h, start.h);
  EXPECT_EQ(got.d, start.d);
  // Sums of `inner` products below 1, in another order.
  EXPECT_LE(test::max_abs_difference(got.dweights, start.dweights),
            0x1p-24 * static_cast<double>(inner * inner));
}

TEST(CudaExpertRows, GoToExpertsAndBackAsOnTheCpu) {
  for (const auto& [tokens, k, width, inner] :
       {std::array<std::int64_t, 4>{1, 1, 1, 1}, {5, 2, 33, 7}, {9, 3, 32, 40}, {70, 2, 8, 72}}) {
    check_rows<float>(tokens, k, width, inner);
    check_rows<Bf16>(tokens, k, width, inner);
  }
}

}  // namespace
}  // namespace atl::ops
