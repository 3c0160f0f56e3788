// Attention with sinks: the definition, gradients against finite differences, and the caches of a
// generation.

#include "atoll/ops/attention/attention_sinks.h"

#include <gtest/gtest.h>

#include <numeric>

#include "atoll/ops/attention/attention_testing.h"

namespace atl::ops {
namespace {

using test::attention_tolerance;
using test::AttentionCall;
using test::error;
using test::OwnedTensor;
using test::random_tensor;
using test::TestRun;

struct Case {
  HeadLayout heads;
  std::int64_t B;
  std::int64_t T;
  std::int64_t window = 0;
};
const Case kCases[] = {
    {{1, 1, 16}, 1, 1}, {{4, 2, 24}, 2, 70}, {{6, 2, 64}, 1, 131, 20}, {{2, 1, 260}, 1, 9}};

template <typename T>
AttentionCall<T> call_of(const Case& c) {
  AttentionCall<T> call(c.heads, c.B, c.T);
  call.window = c.window;
  return call;
}

OwnedTensor<double> sinks_of(const Case& c) {
  return random_tensor<double>({c.heads.num_heads}, 7);
}
OwnedTensor<float> narrow(const OwnedTensor<double>& wide) {
  OwnedTensor<float> values(wide.shape);
  std::copy(wide.values.begin(), wide.values.end(), values.values.begin());
  return values;
}

template <typename T>
void forward(Run& run, AttentionCall<T>& call, const Tensor& sinks) {
  call.forward(run);
  attention_sinks(run, call.heads, sinks, call.out, call.lse);
}

TEST(AttentionSinks, ReferenceIsTheDefinition) {
  // Scores 2 and -1, and a sink of 0.5.
  TestRun run;
  AttentionCall<double> a({1, 1, 1}, 1, 2);
  a.scale = 1;
  a.qkv.values = {0, 2, 10, 1, -1, 20};
  OwnedTensor<double> sinks({1}, 0.5);
  forward<double>(run, a, sinks);
  const double sum = std::exp(2) + std::exp(-1) + std::exp(0.5);
  EXPECT_NEAR(a.out[1], (10 * std::exp(2) + 20 * std::exp(-1)) / sum, 1e-12);
  EXPECT_NEAR(a.lse[1], std::log(sum), 1e-12);
}

TEST(AttentionSinks, GradientsAreThoseOfFiniteDifferences) {
  TestRun run;
  for (const Case& c : {Case{{4, 2, 3}, 2, 5}, Case{{2, 1, 3}, 2, 7, 3}}) {
    auto a = call_of<double>(c);
    OwnedTensor<double> sinks = sinks_of(c), dsinks(sinks.shape, std::nan(""));
    forward<double>(run, a, sinks);
    a.backward(run);
    attention_sinks_backward(run, a.heads, sinks, a.out, a.lse, a.dout, dsinks);
    const auto value = [&] {
      forward<double>(run, a, sinks);
      return test::dot(a.out, a.dout);
    };
    EXPECT_LE(test::max_abs_difference(a.dqkv, test::finite_difference(a.qkv, value)), 4e-9);
    EXPECT_LE(test::max_abs_difference(dsinks, test::finite_difference(sinks, value)), 4e-9);
  }
}

TEST(AttentionSinks, F32IsNearDouble) {
  TestRun run;
  for (const Case& c : kCases) {
    auto fast = call_of<float>(c);
    auto exact = call_of<double>(c);
    const OwnedTensor<double> wide = sinks_of(c);
    OwnedTensor<float> sinks = narrow(wide);
    OwnedTensor<double> same(sinks.shape);  // what f32 keeps of the sinks
    std::copy(sinks.values.begin(), sinks.values.end(), same.values.begin());
    OwnedTensor<float> dsinks(sinks.shape);
    OwnedTensor<double> exact_dsinks(sinks.shape);
    forward<float>(run, fast, sinks);
    forward<double>(run, exact, same);
    fast.backward(run);
    exact.backward(run);
    attention_sinks_backward(run, fast.heads, sinks, fast.out, fast.lse, fast.dout, dsinks);
    attention_sinks_backward(run, exact.heads, same, exact.out, exact.lse, exact.dout,
                             exact_dsinks);
    // Beside attention's own: four roundings of the factor.
    const std::int64_t group = c.heads.num_heads / c.heads.num_kv_heads;
    const double bound = attention_tolerance(c.heads.head_dim, c.T * group) + 4 * 0x1p-23;
    EXPECT_LE(error(fast.out, exact.out), bound) << c.T;
    EXPECT_LE(error(fast.lse, exact.lse), bound) << c.T;
    EXPECT_LE(error(fast.dqkv, exact.dqkv), bound) << c.T;
    // A sum over B T rows of products of D, each off by as much.
    EXPECT_LE(error(dsinks, exact_dsinks),
              bound * std::sqrt(static_cast<double>(c.B * c.T * c.heads.head_dim)))
        << c.T;
  }
}

TEST(AttentionSinks, CachesGiveTheSame) {
  TestRun run;
  for (const Case& c : kCases) {
    auto exact = call_of<double>(c);
    auto fast = call_of<float>(c);
    OwnedTensor<double> wide = sinks_of(c);
    OwnedTensor<float> sinks = narrow(wide);
    forward<double>(run, exact, wide);
    const double bound =
        attention_tolerance(c.heads.head_dim, c.T) + 8 * 0x1p-23;  // sinks are rounded too
    for (const std::int64_t step : {std::int64_t{1}, c.T}) {
      OwnedTensor<float> keys({c.B, c.T, c.heads.kv_width()}), values(keys);
      for (std::int64_t at = 0; at < c.T; at += step) {
        OwnedTensor<float> rows({c.B, step, c.heads.qkv_width()});
        OwnedTensor<float> out({c.B, step, c.heads.query_width()});
        OwnedTensor<float> lse({c.B, c.heads.num_heads, step});
        const std::int64_t width = c.heads.qkv_width(), attended = c.heads.query_width();
        for (std::int64_t b = 0; b < c.B; ++b) {
          std::copy_n(fast.qkv.values.begin() + (b * c.T + at) * width, step * width,
                      rows.values.begin() + b * step * width);
        }
        attention_cached(run, c.heads, fast.scores(), {.window = c.window}, at, rows, keys, values,
                         out, lse);
        attention_sinks(run, c.heads, sinks, out, lse);
        for (std::int64_t b = 0; b < c.B; ++b) {
          for (std::int64_t i = 0; i < step * attended; ++i) {
            ASSERT_NEAR(out[b * step * attended + i], exact.out[(b * c.T + at) * attended + i],
                        bound)
                << "T " << c.T << ", row " << at;
          }
        }
      }
    }
  }
}

TEST(AttentionSinks, PagedRowsHaveTheSameBitsInAnyPieces) {
  TestRun run;
  constexpr std::int64_t kBlock = 16;
  const Case c = {{6, 2, 64}, 1, 131, 20};
  auto exact = call_of<double>(c);
  auto fast = call_of<float>(c);
  OwnedTensor<double> wide = sinks_of(c);
  OwnedTensor<float> sinks = narrow(wide);
  forward<double>(run, exact, wide);
  std::vector<std::int32_t> blocks((c.T + kBlock - 1) / kBlock);
  std::iota(blocks.rbegin(), blocks.rend(), 0);
  const auto in_pieces = [&](std::int64_t step) {
    OwnedTensor<float> keys({1, std::ssize(blocks) * kBlock, c.heads.kv_width()}), values(keys);
    OwnedTensor<float> whole({1, c.T, c.heads.query_width()});
    for (std::int64_t at = 0; at < c.T; at += step) {
      const std::int64_t rows = std::min(step, c.T - at);
      OwnedTensor<float> qkv({1, rows + 1, c.heads.qkv_width()});  // the last is of no sequence
      std::copy_n(fast.qkv.values.begin() + at * c.heads.qkv_width(), rows * c.heads.qkv_width(),
                  qkv.values.begin());
      OwnedTensor<float> out({1, rows + 1, c.heads.query_width()}, std::nanf(""));
      OwnedTensor<float> lse({1, c.heads.num_heads, rows + 1}, std::nanf(""));
      const std::vector<PagedRows> given = {{0, rows, at, blocks}};
      attention_paged(run, c.heads, fast.scores(), c.window, given, kBlock, qkv, keys, values, out,
                      lse);
      attention_sinks(run, c.heads, sinks, out, lse);
      EXPECT_EQ(out.values.back(), 0) << "a row of no sequence";
      std::copy_n(out.values.begin(), rows * c.heads.query_width(),
                  whole.values.begin() + at * c.heads.query_width());
    }
    return whole;
  };
  const OwnedTensor<float> whole = in_pieces(c.T);
  EXPECT_LE(error(whole, exact.out), attention_tolerance(c.heads.head_dim, c.T) + 8 * 0x1p-23);
  for (const std::int64_t step : {1, 7, 64}) EXPECT_EQ(in_pieces(step), whole) << step;
}

TEST(AttentionSinks, SinksFarFromTheScoresAreExact) {
  TestRun run;
  auto call = call_of<float>(kCases[1]);
  call.forward(run);
  const OwnedTensor<float> without = call.out;
  OwnedTensor<float> sinks({4}, -1e4F);
  attention_sinks(run, call.heads, sinks, call.out, call.lse);
  EXPECT_EQ(call.out, without);
  sinks.values.assign(4, 1e4F);
  attention_sinks(run, call.heads, sinks, call.out, call.lse);
  EXPECT_EQ(test::max_abs(call.out), 0);
}

}  // namespace
}  // namespace atl::ops
