// Attention on the fake GPU against ref in double: documents, windows and shared keys.

#include "atoll/ops/attention/attention.h"

#include <gtest/gtest.h>

#include "atoll/ops/attention/ref.h"
#include "atoll/ops/cuda/testing.h"

namespace atl::ops {
namespace {

using test::Gpu;
using test::OwnedTensor;
using test::random_tensor;

const auto kDiffers = [](std::uint64_t order) { ADD_FAILURE() << "other bits in order " << order; };

template <typename T, typename A>
struct Operands {
  OwnedTensor<T> qkv, dout, out, dqkv;
  OwnedTensor<A> lse;
  OwnedTensor<std::int32_t> positions;
  bool operator==(const Operands&) const = default;
};

struct Case {
  HeadLayout heads;
  std::int64_t B;
  std::int64_t T;
  std::int64_t window;
  std::int64_t document;  ///< length of each; 0: one document
  double softcap = 0;
};
const Case kCases[] = {{{1, 1, 1}, 1, 1, 0, 0},        {{4, 2, 6}, 2, 9, 0, 0},
                       {{2, 1, 33}, 1, 12, 5, 0},      {{2, 2, 64}, 1, 11, 0, 4},
                       {{4, 1, 8}, 2, 10, 3, 7},       {{4, 2, 6}, 2, 9, 0, 0, 0.4},
                       {{2, 1, 64}, 1, 11, 5, 7, 0.4}, {{1, 1, 256}, 1, 9, 0, 0, 2}};

template <typename T, typename A>
Operands<T, A> make(const Case& c) {
  const Shape qkv = {c.B, c.T, c.heads.qkv_width()}, out = {c.B, c.T, c.heads.query_width()};
  Operands<T, A> o{random_tensor<T>(qkv, 1),
                   random_tensor<T>(out, 2),
                   OwnedTensor<T>(out),
                   OwnedTensor<T>(qkv, test::number<T>(1e30)),
                   OwnedTensor<A>({c.B, c.heads.num_heads, c.T}),
                   OwnedTensor<std::int32_t>({c.B, c.T})};
  for (std::int64_t i = 0; i < c.B * c.T; ++i) {
    const std::int64_t t = i % c.T;
    o.positions[i] = static_cast<std::int32_t>(c.document > 0 ? t % c.document : t);
  }
  return o;
}

template <typename T>
void check(double tolerance) {
  for (const Case& c : kCases) {
    const AttentionScores scores = {0.3, c.softcap};
    const auto start = make<T, float>(c);
    const bool has_tensor_cores =
        std::is_same_v<T, Bf16> && c.heads.head_dim % 8 == 0 && c.softcap == 0;
    const auto got = test::in_every_order(
        start,
        [&](Gpu& gpu, Operands<T, float>& o) {
          const AttentionMask mask = {.window = c.window,
                                      .positions = c.document > 0 ? gpu(o.positions) : Tensor()};
          const Tensor qkv = gpu(o.qkv), out = gpu(o.out), lse = gpu(o.lse);
          attention_forward(gpu.run, c.heads, scores, mask, qkv, out, lse);
          attention_backward(gpu.run, c.heads, scores, mask, qkv, out, lse, gpu(o.dout),
                             gpu(o.dqkv));
        },
        kDiffers, has_tensor_cores);
    auto exact = make<double, double>(c);
    exact.qkv = start.qkv.template as<double>();
    exact.dout = start.dout.template as<double>();
    test::TestRun host;
    const AttentionMask mask = {.window = c.window,
                                .positions = c.document > 0 ? exact.positions.view() : Tensor()};
    ref::attention_forward<double>(host.run, c.heads, scores, mask, exact.qkv, exact.out,
                                   exact.lse);
    ref::attention_backward<double>(host.run, c.heads, scores, mask, exact.qkv, exact.out,
                                    exact.lse, exact.dout, exact.dqkv);
    EXPECT_LE(test::max_abs_difference(got.out, exact.out), tolerance) << c.T;
    EXPECT_LE(test::max_abs_difference(got.lse, exact.lse), 1e-5) << c.T;
    EXPECT_LE(test::max_abs_difference(got.dqkv, exact.dqkv), 4 * tolerance) << c.T;
  }
}

TEST(CudaAttention, MatchesRefInDouble) {
  check<float>(1e-5);
}
TEST(CudaAttention, MatchesRefInBf16) {
  // Values below 1 are stored to half of 2^-8; gradients sum up to a dozen of them.
  check<Bf16>(0x1p-8);
}

template <typename T>
struct CachedOperands {
  OwnedTensor<T> qkv, keys, values, out;
  bool operator==(const CachedOperands&) const = default;
};

// New rows behind `past` keys, of which all or a window are seen.
template <typename T>
void check_cached(const HeadLayout& heads, std::int64_t rows, std::int64_t past,
                  std::int64_t window, double tolerance) {
  const AttentionScores scores = {0.3, 0.4};
  const Shape cache = {2, past + rows, heads.kv_width()};
  const CachedOperands<T> start{random_tensor<T>({2, rows, heads.qkv_width()}, 1),
                                random_tensor<T>(cache, 2), random_tensor<T>(cache, 3),
                                OwnedTensor<T>({2, rows, heads.query_width()})};
  const auto got = test::in_every_order(
      start,
      [&](Gpu& gpu, CachedOperands<T>& o) {
        attention_cached(gpu.run, heads, scores, {.window = window}, past, gpu(o.qkv), gpu(o.keys),
                         gpu(o.values), gpu(o.out));
      },
      kDiffers);
  auto exact = OwnedTensor<double>(start.out.shape);
  auto qkv = start.qkv.template as<double>();
  auto keys = start.keys.template as<double>(), values = start.values.template as<double>();
  test::TestRun host;
  attention_cached(host.run, heads, scores, {.window = window}, past, qkv, keys, values, exact);
  EXPECT_LE(test::max_abs_difference(got.out, exact), tolerance) << heads.head_dim;
}

TEST(CudaAttention, CapsTheScoresOfCaches) {
  for (const std::int64_t window : {0, 4}) {
    check_cached<float>({4, 2, 6}, 3, 7, window, 1e-5);
    check_cached<Bf16>({2, 1, 64}, 17, 3, window, 0x1p-8);
  }
}

}  // namespace
}  // namespace atl::ops
