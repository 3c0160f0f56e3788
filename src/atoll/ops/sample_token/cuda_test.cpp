// Tokens that are drawn on the host and on the fake GPU: those of ref, in every order of threads
// and blocks.

#include "atoll/ops/sample_token/sample_token.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "atoll/ops/cuda/testing.h"
#include "atoll/ops/sample_token/cuda_token_weights.h"
#include "atoll/ops/sample_token/ref.h"

namespace atl::ops {
namespace {

using test::Gpu;
using test::OwnedTensor;
using test::TestRun;

const auto kDiffers = [](std::uint64_t order) { ADD_FAILURE() << "other bits in order " << order; };

// Normal logits of this size, rounded to quarters where many shall be equal.
OwnedTensor<float> logits_of(std::int64_t count, float scale, bool has_ties) {
  const RngStream stream(7, RngPurpose::kSynthetic, static_cast<std::uint64_t>(count));
  OwnedTensor<float> logits({count});
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = scale * stream.normal(static_cast<std::uint64_t>(i));
    logits[i] = has_ties ? std::round(4 * value) / 4 : value;
  }
  return logits;
}

std::uint64_t random_bits(std::uint64_t i) {
  const RngStream stream(11, RngPurpose::kSynthetic);
  return std::uint64_t{stream.word(2 * i)} << 32 | stream.word(2 * i + 1);
}

std::uint64_t share_of(double top_p) {
  return static_cast<std::uint64_t>(std::llround(top_p * 0x1p32));
}

struct Drawing {
  OwnedTensor<float> logits;
  OwnedTensor<std::int32_t> result = OwnedTensor<std::int32_t>({2}, 77);
  bool operator==(const Drawing&) const = default;
};

std::int32_t expected(const TokenDraw& draw, const OwnedTensor<float>& logits) {
  return ref::sample_token(draw, logits.values).token;
}

std::int32_t on_host(TestRun& run, const TokenDraw& draw, Drawing drawing) {
  sample_token(run, draw, drawing.logits, drawing.result);
  return drawing.result[0];
}

std::int32_t on_gpu(const TokenDraw& draw, const Drawing& start) {
  const auto got = test::in_every_order(
      start,
      [&](Gpu& gpu, Drawing& d) {
        const Tensor logits = gpu(d.logits), result = gpu(d.result);
        const std::size_t planned = sample_token_scratch_bytes(logits.num_elements());
        gpu.run.scratch = gpu.run.scratch.first(planned);
        sample_token(gpu.run, draw, logits, result);
      },
      kDiffers);
  EXPECT_EQ(got.result[1], 0);
  return got.result[0];
}

const TokenDraw kDraws[] = {
    {.temperature = 0},
    {.temperature = 0.8F},
    {.temperature = 0.7F, .top_k = 1},
    {.temperature = 0.7F, .top_k = 40},
    {.temperature = 1.3F, .share = share_of(0.3)},
    {.temperature = 0.8F, .share = share_of(0.95)},
    {.temperature = 5, .top_k = 100, .share = share_of(0.9)},
    {.temperature = 1e30F, .share = share_of(0.999999)},
};

TEST(SampleToken, OfTheHostIsThatOfSortingEverything) {
  TestRun run;
  for (const std::int64_t count : {1, 2, 33, 300, 5000}) {
    for (const float scale : {0.0F, 1.0F, 30.0F}) {
      for (const bool has_ties : {false, true}) {
        const auto logits = logits_of(count, scale, has_ties);
        for (TokenDraw draw : kDraws) {
          for (std::uint64_t i = 0; i < 10; ++i) {
            draw.random = random_bits(i);
            EXPECT_EQ(on_host(run, draw, {logits}), expected(draw, logits)) << count;
          }
        }
      }
    }
  }
}

// Chunks that are not full, and several; logits that are all equal, with ties across chunks, and
// far apart.
TEST(CudaSampleToken, GivesTheTokensOfTheHostInEveryOrder) {
  struct Case {
    std::int64_t count;
    float scale;
    bool has_ties;
    std::vector<std::size_t> draws;
  };
  const Case cases[] = {{1, 1, false, {0, 1, 5}},
                        {300, 1, true, {0, 1, 2, 3, 4, 5, 6, 7}},
                        {300, 0, true, {3, 7}},
                        {4097, 1, true, {1, 6}},
                        {4097, 30, false, {5}}};
  std::uint64_t number = 0;
  for (const Case& c : cases) {
    const auto logits = logits_of(c.count, c.scale, c.has_ties);
    for (const std::size_t i : c.draws) {
      TokenDraw draw = kDraws[i];
      draw.random = random_bits(number++);
      EXPECT_EQ(on_gpu(draw, {logits}), expected(draw, logits)) << c.count << ", draw " << i;
    }
  }
}

// The first and the last token that may be drawn, where sums cross their bounds.
TEST(CudaSampleToken, TakesTheEndsOfTheRange) {
  for (const std::uint64_t random : {std::uint64_t{0}, ~std::uint64_t{0}}) {
    for (TokenDraw draw : {kDraws[1], kDraws[5]}) {
      draw.random = random;
      const auto logits = logits_of(2100, 1, true);
      EXPECT_EQ(on_gpu(draw, {logits}), expected(draw, logits));
    }
  }
}

TEST(SampleToken, NamesTheFirstLogitThatIsBad) {
  for (const float bad : {std::nanf(""), INFINITY}) {
    for (const TokenDraw& draw : {kDraws[0], kDraws[5]}) {
      Drawing start{logits_of(4100, 1, false)};
      start.logits[2100] = bad;
      start.logits[4000] = std::nanf("1");
      TestRun host;
      Drawing here = start;
      sample_token(host, draw, here.logits, here.result);
      Gpu gpu;
      Drawing there = start;
      sample_token(gpu.run, draw, gpu(there.logits), gpu(there.result));
      gpu.finish();
      for (const Drawing& drawn : {here, there}) {
        EXPECT_EQ(drawn.result[0], -1);
        EXPECT_EQ(drawn.result[1], std::bit_cast<std::int32_t>(bad));
      }
    }
  }
}

TEST(SampleToken, OfNothingButMinusInfinityIsTheFirst) {
  Drawing drawing{OwnedTensor<float>({5}, -INFINITY)};
  TestRun host;
  EXPECT_EQ(on_host(host, kDraws[1], drawing), 0);
  EXPECT_EQ(on_gpu(kDraws[1], drawing), 0);
  EXPECT_EQ(on_gpu(kDraws[5], drawing), 0);
}

TEST(TokenWeight, IsTheExponentialAndRises) {
  EXPECT_EQ(token_weight(0), std::uint64_t{1} << 40);
  EXPECT_EQ(token_weight(-27), 0U);
  EXPECT_EQ(token_weight(-INFINITY), 0U);
  EXPECT_EQ(token_weight(std::nanf("")), 0U);
  for (int i = 0; i < 20000; ++i) {
    const float x = -static_cast<float>(i) * 1e-3F;
    const double exact = std::exp(static_cast<double>(x)) * 0x1p40;
    // f32 of a result in [2^40 e^-20, 2^40], and x's reduction.
    EXPECT_NEAR(static_cast<double>(token_weight(x)), exact, 3e-7 * exact + 1) << x;
  }
}

TEST(TokenWeight, SharesAndDrawsAreExact) {
  EXPECT_EQ(least_share(100, TokenDraw::kAll), 100U);
  EXPECT_EQ(least_share(100, 1), 1U);
  EXPECT_EQ(least_share((std::uint64_t{1} << 62) + 1, std::uint64_t{1} << 31),
            (std::uint64_t{1} << 61) + 1);
  EXPECT_EQ(drawn_below(0, 77), 0U);
  EXPECT_EQ(drawn_below(~std::uint64_t{0}, 77), 76U);
  EXPECT_EQ(drawn_below(std::uint64_t{1} << 63, (std::uint64_t{1} << 62) + 3),
            (std::uint64_t{1} << 61) + 1);
  EXPECT_EQ(drawn_below(~std::uint64_t{0}, (std::uint64_t{1} << 62) + 3),
            (std::uint64_t{1} << 62) + 2);
}

}  // namespace
}  // namespace atl::ops
