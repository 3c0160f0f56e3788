// Attention with tensor cores on the fake GPU against ref in double, and caches of generation with
// and without them. Whether a call uses tensor cores is told by the kernels that ran.

#include <gtest/gtest.h>

#include "atoll/ops/attention/attention.h"
#include "atoll/ops/attention/ref.h"
#include "atoll/ops/cuda/testing.h"

namespace atl::ops {
namespace {

using test::Gpu;
using test::OwnedTensor;
using test::random_tensor;

const auto kDiffers = [](std::uint64_t order) { ADD_FAILURE() << "other bits in order " << order; };
constexpr double kScale = 0.2;

struct Case {
  HeadLayout heads;
  std::int64_t B;
  std::int64_t T;
  std::int64_t window = 0;
  std::int64_t document = 0;  ///< length of each; 0: one document
  double scale = kScale;
};
// Heads of both widths and padded ones; rows that fill tiles and that do not; masks that end in the
// middle of tiles; scores that grow from tile to tile.
const Case kCases[] = {{{1, 1, 64}, 1, 1},
                       {{2, 1, 64}, 2, 70},
                       {{2, 1, 128}, 1, 130, 0, 50},
                       {{1, 1, 80}, 1, 100, 33},
                       {{2, 2, 8}, 1, 65},
                       {{3, 1, 64}, 1, 150, 70, 90},
                       {{1, 1, 128}, 1, 64},
                       {{2, 1, 96}, 1, 33, 5, 7},
                       {{1, 1, 64}, 1, 270, 0, 0, 4},
                       {{3, 1, 128}, 1, 200, 150, 0, 2}};

template <typename T, typename A>
struct Operands {
  OwnedTensor<T> qkv, dout, out, dqkv;
  OwnedTensor<A> lse;
  OwnedTensor<std::int32_t> positions;
  bool operator==(const Operands&) const = default;
};

template <typename T, typename A>
Operands<T, A> make(const Case& c) {
  const Shape qkv = {c.B, c.T, c.heads.qkv_width()}, out = {c.B, c.T, c.heads.query_width()};
  Operands<T, A> o{random_tensor<T>(qkv, 1),
                   random_tensor<T>(out, 2),
                   OwnedTensor<T>(out, test::number<T>(1e30)),
                   OwnedTensor<T>(qkv, test::number<T>(1e30)),
                   OwnedTensor<A>({c.B, c.heads.num_heads, c.T}),
                   OwnedTensor<std::int32_t>({c.B, c.T})};
  for (std::int64_t i = 0; i < c.B * c.T; ++i) {
    const std::int64_t t = i % c.T;
    o.positions[i] = static_cast<std::int32_t>(c.document > 0 ? t % c.document : t);
  }
  return o;
}

AttentionMask mask_of(const Case& c, Tensor positions) {
  return {.window = c.window, .positions = c.document > 0 ? positions : Tensor()};
}

// max |fast - exact| / max(1, max |exact|).
double error(const OwnedTensor<Bf16>& fast, const OwnedTensor<double>& exact) {
  return test::max_abs_difference(fast, exact) / std::max(1.0, test::max_abs(exact));
}

Operands<double, double> expected_of(const Case& c, const Operands<Bf16, float>& start) {
  auto exact = make<double, double>(c);
  exact.qkv = start.qkv.as<double>();
  exact.dout = start.dout.as<double>();
  test::TestRun host;
  const AttentionMask mask = mask_of(c, exact.positions);
  ref::attention_forward<double>(host.run, c.heads, c.scale, mask, exact.qkv, exact.out, exact.lse);
  ref::attention_backward<double>(host.run, c.heads, c.scale, mask, exact.qkv, exact.out, exact.lse,
                                  exact.dout, exact.dqkv);
  return exact;
}

void run_on(Gpu& gpu, const Case& c, Operands<Bf16, float>& o) {
  const AttentionMask mask = mask_of(c, gpu(o.positions));
  const Tensor qkv = gpu(o.qkv), out = gpu(o.out), lse = gpu(o.lse);
  attention_forward(gpu.run, c.heads, c.scale, mask, qkv, out, lse);
  attention_backward(gpu.run, c.heads, c.scale, mask, qkv, out, lse, gpu(o.dout), gpu(o.dqkv));
}

void expect_near(const Case& c, const Operands<Bf16, float>& got,
                 const Operands<double, double>& exact) {
  // Probabilities are rounded to half of 2^-8 before they meet values of at most 1; where one alone
  // counts, and an earlier and smaller score is what it is kept over, to half of 2^-7 of itself.
  const double worst = c.scale > 1 ? 0x1p-8 : 0x1p-9;
  EXPECT_LE(test::max_error_beyond_rounding(got.out, exact.out), worst);
  EXPECT_LE(test::max_abs_difference(got.lse, exact.lse), 1e-5);
  // Gradients sum rounded probabilities, rounded ds and what `out` was rounded by, half of 2^-8
  // each, and are rounded themselves.
  EXPECT_LE(error(got.dqkv, exact.dqkv), 0x1p-7);
}

void check_case(const Case& c) {
  SCOPED_TRACE(fmt::format("B {} T {} heads {}/{} of {}, window {}, documents of {}", c.B, c.T,
                           c.heads.num_heads, c.heads.num_kv_heads, c.heads.head_dim, c.window,
                           c.document));
  const auto start = make<Bf16, float>(c);
  const auto got = test::in_every_order(
      start, [&](Gpu& gpu, Operands<Bf16, float>& o) { run_on(gpu, c, o); }, kDiffers,
      /*has_products=*/true);
  expect_near(c, got, expected_of(c, start));
}

TEST(CudaAttentionMma, MatchesRefInDouble) {
  for (const Case& c : kCases) check_case(c);
}

// A GPU's sums are its own, but the same each time.
TEST(RealGpuAttention, MatchesDoubleAHundredTimes) {
  if (!test::has_real_gpu()) GTEST_SKIP() << "no GPU, or built without nvcc";
  for (const Case& c : kCases) {
    const auto start = make<Bf16, float>(c);
    auto first = start;
    for (int turn = 0; turn < 100; ++turn) {
      auto now = start;
      Gpu gpu(test::kRealGpu);
      run_on(gpu, c, now);
      gpu.finish();
      if (turn == 0) first = now;
      ASSERT_TRUE(now == first) << "other bits at turn " << turn;
    }
    expect_near(c, first, expected_of(c, start));
  }
}

TEST(CudaAttentionMma, IsChosenByHeadsAndDtype) {
  const auto kernels = [](HeadLayout heads, auto element) {
    using T = decltype(element);
    auto o = make<T, float>({heads, 1, 3});
    Gpu gpu;
    attention_forward(gpu.run, heads, kScale, {}, gpu(o.qkv), gpu(o.out), gpu(o.lse));
    gpu.finish();
    return gpu.device().totals().begin()->first;
  };
  EXPECT_EQ(kernels({1, 1, 64}, Bf16{}), "attention_mma_forward");
  EXPECT_EQ(kernels({1, 1, 128}, Bf16{}), "attention_mma_forward");
  EXPECT_EQ(kernels({1, 1, 136}, Bf16{}), "attention_forward");
  EXPECT_EQ(kernels({1, 1, 12}, Bf16{}), "attention_forward");
  EXPECT_EQ(kernels({1, 1, 64}, 0.0F), "attention_forward");
}

// What a tile of queries reads of keys and values is what its queries see, in whole tiles.
TEST(CudaAttentionMma, ReadsTheTilesThatAreSeen) {
  constexpr std::int64_t kT = 256, kD = 64, kRow = 2 * kD;
  const auto bytes_read = [](std::int64_t window) {
    auto o = make<Bf16, float>({{1, 1, kD}, 1, kT});
    Gpu gpu;
    attention_forward(gpu.run, {1, 1, kD}, kScale, {.window = window}, gpu(o.qkv), gpu(o.out),
                      gpu(o.lse));
    gpu.finish();
    return static_cast<std::int64_t>(
        gpu.device().totals().at("attention_mma_forward").traffic.read);
  };
  // Two tiles of 128 queries; 64 keys a tile.
  EXPECT_EQ(bytes_read(0), kRow * (kT + 2 * 64 * (2 + 4)));
  EXPECT_EQ(bytes_read(1), kRow * (kT + 2 * 64 * (2 + 2)));
  EXPECT_EQ(bytes_read(65), kRow * (kT + 2 * 64 * (2 + 3)));
}

// ---------------------------------------------------------------------------------------------
// Generation.

template <typename T>
struct Cached {
  OwnedTensor<T> qkv, keys, values, out;
  OwnedTensor<std::int32_t> places;
  bool operator==(const Cached&) const = default;
};

// `past` rows are in the caches; T rows come.
template <typename T>
void check_cached(HeadLayout heads, std::int64_t B, std::int64_t past, std::int64_t rows,
                  std::int64_t window, const char* kernel, double tolerance) {
  SCOPED_TRACE(fmt::format("{} past, {} new, heads of {}", past, rows, heads.head_dim));
  const Shape cache = {B, past + rows + 3, heads.kv_width()};
  OwnedTensor<std::int32_t> places({B, rows});
  for (std::int64_t i = 0; i < places.size(); ++i) {
    places[i] = static_cast<std::int32_t>(past + i % rows);
  }
  const Cached<T> start = {random_tensor<T>({B, rows, heads.qkv_width()}, 1),
                           random_tensor<T>(cache, 2), random_tensor<T>(cache, 3),
                           OwnedTensor<T>({B, rows, heads.query_width()}, test::number<T>(1e30)),
                           places};
  const auto got = test::in_every_order(
      start,
      [&](Gpu& gpu, Cached<T>& o) {
        attention_cached(gpu.run, heads, kScale, {.window = window, .positions = gpu(o.places)},
                         past, gpu(o.qkv), gpu(o.keys), gpu(o.values), gpu(o.out));
        gpu.finish();
        EXPECT_EQ(gpu.device().totals().count(kernel), 1u) << kernel;
        EXPECT_EQ(gpu.device().totals().count("store_keys"), 1u);
      },
      kDiffers, /*has_products=*/true);
  Cached<double> exact = {start.qkv.template as<double>(), start.keys.template as<double>(),
                          start.values.template as<double>(), OwnedTensor<double>(start.out.shape),
                          places};
  test::TestRun host;
  attention_cached(host.run, heads, kScale, {.window = window}, past, exact.qkv, exact.keys,
                   exact.values, exact.out);
  EXPECT_EQ(got.keys.template as<double>(), exact.keys);
  EXPECT_EQ(got.values.template as<double>(), exact.values);
  EXPECT_LE(test::max_abs_difference(got.out, exact.out), tolerance);
}

TEST(CudaAttentionCached, MatchesRefInDouble) {
  const char* plain = "attention_forward";
  check_cached<float>({4, 2, 6}, 2, 0, 3, 0, plain, 1e-5);
  check_cached<float>({2, 1, 64}, 1, 70, 1, 0, plain, 1e-5);
  check_cached<float>({3, 1, 33}, 2, 9, 5, 4, plain, 1e-5);
  check_cached<Bf16>({2, 1, 64}, 2, 70, 1, 0, plain, 0x1p-8);
  check_cached<Bf16>({1, 1, 20}, 1, 3, 2, 0, plain, 0x1p-8);
}

TEST(CudaAttentionCached, MatchesRefInDoubleWithTensorCores) {
  const char* mma = "attention_mma_forward";
  // Half of 2^-8 for the probabilities, and as much for the result.
  check_cached<Bf16>({2, 1, 64}, 2, 0, 66, 0, mma, 0x1p-8);
  check_cached<Bf16>({2, 2, 128}, 1, 70, 16, 0, mma, 0x1p-8);
  check_cached<Bf16>({1, 1, 72}, 1, 100, 30, 40, mma, 0x1p-8);
}

}  // namespace
}  // namespace atl::ops
