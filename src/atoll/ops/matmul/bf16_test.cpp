// bf16 in every op whose f32 kernel serves it too: what is stored is what f32 makes of the same
// numbers, rounded once, and what stays in f32 (statistics, weight gradients) has the bits of f32.
// Matrix products and the head are cut otherwise than in f32 and have tests of their own.

#include <gtest/gtest.h>

#include <bit>

#include "atoll/ops/activation/activation.h"
#include "atoll/ops/activation/ref.h"
#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/ops/elementwise/ref.h"
#include "atoll/ops/embedding/embedding.h"
#include "atoll/ops/embedding/ref.h"
#include "atoll/ops/norm/norm.h"
#include "atoll/ops/norm/ref.h"
#include "atoll/ops/norm/ref_qk_norm.h"
#include "atoll/ops/rope/ref.h"
#include "atoll/ops/rope/rope.h"
#include "atoll/ops/targets_testing.h"
#include "atoll/ops/testing.h"

namespace atl::ops {
namespace {

using test::OwnedTensor;
using test::random_tensor;
using test::random_tokens;
using test::TestRun;

constexpr std::int64_t kWidths[] = {1, 3, 17, 65, 255};

// What an op must store: the f32 result, rounded once.
OwnedTensor<Bf16> rounded(const OwnedTensor<float>& x) {
  return x.as<Bf16>();
}

// The largest distance of two tensors in bf16 numbers between them; signs must agree.
int ulps_apart(const OwnedTensor<Bf16>& a, const OwnedTensor<Bf16>& b) {
  int worst = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<int>(a[i].bits) - static_cast<int>(b[i].bits)));
  }
  return worst;
}

// Runs body(run) with 1, 2 and 3 threads.
template <typename Body>
void with_threads(Body&& body) {
  for (int threads = 1; threads <= 3; ++threads) {
    TestRun run(threads);
    body(run);
  }
}

class Bf16Targets : public test::EachTarget {};

TEST_P(Bf16Targets, ConvertRoundsAsTheScalarDoes) {
  TestRun run;
  // Every upper half of an f32, infinities and NaNs too, with the lower halves where rounding
  // turns.
  const std::uint32_t lower[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
  OwnedTensor<float> x({6 * 65536 + 3}, 1.5F);
  for (std::uint32_t upper = 0; upper < 65536; ++upper) {
    for (std::uint32_t i = 0; i < 6; ++i) {
      x[upper * 6 + i] = std::bit_cast<float>(upper << 16 | lower[i]);
    }
  }
  OwnedTensor<Bf16> y(x.shape);
  convert(run, x, y);
  for (std::int64_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(y[i].bits, to_bf16(x[i]).bits) << std::bit_cast<std::uint32_t>(x[i]);
  }
  OwnedTensor<float> back(x.shape);
  convert(run, y, back);
  for (std::int64_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(back[i]), std::uint32_t{y[i].bits} << 16);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Bf16Targets, testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         test::target_name);

TEST(Convert, CopiesWithinADtypeAndRefusesOthers) {
  TestRun run;
  auto x = random_tensor<double>({5}, 1);
  OwnedTensor<double> y({5});
  convert(run, x, y);
  EXPECT_EQ(y, x);
  OwnedTensor<float> single({5});
  EXPECT_THROW(convert(run, x, single), Error);
  OwnedTensor<Bf16> shorter({4});
  EXPECT_THROW(convert(run, single, shorter), Error);
}

TEST(Bf16, AddAndDropoutRoundOnce) {
  with_threads([](TestRun& run) {
    for (const std::int64_t C : kWidths) {
      auto a = random_tensor<Bf16>({3, 37, C}, 1);
      auto b = random_tensor<Bf16>({3, 37, C}, 2, 0.1F);
      auto a32 = a.as<float>(), b32 = b.as<float>();
      OwnedTensor<Bf16> y(a.shape), expected(a.shape);
      OwnedTensor<float> y32(a.shape);
      add(run, a, b, y);
      add(run, a32, b32, y32);
      EXPECT_EQ(y, rounded(y32));
      ref::add<Bf16>(a, b, expected);
      EXPECT_EQ(y, expected);
      dropout(run, 0.3, 2, a, y);
      dropout(run, 0.3, 2, a32, y32);
      EXPECT_EQ(y, rounded(y32));
      ref::dropout<Bf16>(run, 0.3, 2, a, expected);
      EXPECT_EQ(y, expected);
      copy(run, a, y);
      EXPECT_EQ(y, a);
      fill_zero(run, y);
      EXPECT_EQ(y, OwnedTensor<Bf16>(a.shape));
    }
  });
}

TEST(Bf16, ActivationsRoundOnce) {
  with_threads([](TestRun& run) {
    for (const std::int64_t F : kWidths) {
      auto gate_up = random_tensor<Bf16>({5, 2 * F}, 1, 8.0F);
      auto dh = random_tensor<Bf16>({5, F}, 2);
      auto wide_in = gate_up.as<float>(), wide_dh = dh.as<float>();
      OwnedTensor<Bf16> h({5, F}), dgate_up(gate_up.shape), other_h(h.shape), other(dgate_up.shape);
      OwnedTensor<float> h32({5, F}), dgate_up32(gate_up.shape);
      swiglu_forward(run, gate_up, h);
      swiglu_forward(run, wide_in, h32);
      EXPECT_EQ(h, rounded(h32));
      swiglu_backward(run, gate_up, dh, dgate_up, h);
      swiglu_backward(run, wide_in, wide_dh, dgate_up32, h32);
      EXPECT_EQ(h, rounded(h32));
      EXPECT_EQ(dgate_up, rounded(dgate_up32));
      // f32 and the reference differ in the last digit, which may move a number over a tie.
      ref::swiglu_backward<Bf16>(gate_up, dh, other, other_h);
      EXPECT_LE(ulps_apart(other, dgate_up), 1);
      EXPECT_LE(ulps_apart(other_h, h), 1);
      for (const Gelu kind : {Gelu::kErf, Gelu::kTanh}) {
        gelu_forward(run, kind, dh, h);
        gelu_forward(run, kind, wide_dh, h32);
        EXPECT_EQ(h, rounded(h32));
        ref::gelu_forward<Bf16>(kind, dh, other_h);
        EXPECT_LE(ulps_apart(other_h, h), 1);
        auto dx = dh;  // in place
        gelu_backward(run, kind, h, dx, dx);
        auto wide_h = h.as<float>();
        gelu_backward(run, kind, wide_h, wide_dh, h32);
        EXPECT_EQ(dx, rounded(h32));
      }
    }
  });
}

// All operands of both norms: T what is stored, A what it is computed in.
template <typename T, typename A>
struct Norm {
  Norm(std::int64_t R, std::int64_t C)
      : x({R, C}),
        weight({C}),
        bias({C}),
        dy({R, C}),
        y({R, C}),
        dx({R, C}),
        mean({R}),
        rstd({R}),
        dweight(random_tensor<A>({C}, 5)),
        dbias(random_tensor<A>({C}, 6)) {
    x = random_tensor<Bf16>({R, C}, 1).as<T>();
    weight = random_tensor<Bf16>({C}, 2).as<T>();
    bias = random_tensor<Bf16>({C}, 3).as<T>();
    dy = random_tensor<Bf16>({R, C}, 4).as<T>();
  }

  void run_layer(Run& run) {
    layer_norm_forward(run, 1e-5, x, weight, bias, y, mean, rstd);
    OwnedTensor<A> sums(norm_sums_spec(x.view().spec(), 2).shape);
    layer_norm_backward(run, x, weight, mean, rstd, dy, {}, dx, sums);
    add_norm_sums(run, x.shape.dim(0), sums, dweight, dbias);
  }
  void run_rms(Run& run) {
    rms_norm_forward(run, 1e-5, x, weight, y, rstd);
    OwnedTensor<A> sums(norm_sums_spec(x.view().spec(), 1).shape);
    rms_norm_backward(run, 1e-5, x, weight, rstd, dy, {}, dx, sums);
    add_norm_sums(run, x.shape.dim(0), sums, dweight);
  }

  OwnedTensor<T> x, weight, bias, dy, y, dx;
  OwnedTensor<A> mean, rstd, dweight, dbias;
};

TEST(Bf16, NormsRoundOnceAndKeepStatisticsInF32) {
  with_threads([](TestRun& run) {
    for (const std::int64_t C : kWidths) {
      Norm<Bf16, float> narrow(37, C);
      Norm<float, float> wide(37, C);
      const auto expect_same = [&] {
        EXPECT_EQ(narrow.y, rounded(wide.y));
        EXPECT_EQ(narrow.dx, rounded(wide.dx));
        EXPECT_EQ(narrow.rstd, wide.rstd);
        EXPECT_EQ(narrow.mean, wide.mean);
        EXPECT_EQ(narrow.dweight, wide.dweight);
        EXPECT_EQ(narrow.dbias, wide.dbias);
      };
      narrow.run_rms(run);
      wide.run_rms(run);
      expect_same();
      narrow.run_layer(run);
      wide.run_layer(run);
      expect_same();
    }
  });
}

TEST(Bf16, ReferenceNormsGiveNearlyTheSame) {
  TestRun run;
  Norm<Bf16, float> fast(37, 65);
  Norm<Bf16, float> exact(37, 65);
  fast.run_rms(run);
  ref::rms_norm_forward<Bf16>(1e-5, exact.x, exact.weight, exact.y, exact.rstd);
  ref::rms_norm_backward_weight<Bf16>(exact.x, exact.rstd, exact.dy, exact.dweight);
  EXPECT_LE(ulps_apart(fast.y, exact.y), 1);
  EXPECT_LE(test::max_abs_difference(fast.dweight, exact.dweight), 1e-5);
  fast.run_layer(run);
  ref::layer_norm_forward<Bf16>(1e-5, exact.x, exact.weight, exact.bias, exact.y, exact.mean,
                                exact.rstd);
  ref::layer_norm_backward_input<Bf16>(exact.x, exact.weight, exact.mean, exact.rstd, exact.dy,
                                       exact.dx);
  EXPECT_LE(test::max_abs_difference(fast.rstd, exact.rstd), 1e-5);
  // Where a sum nearly cancels, an ulp of f32 is more than one of so small a bf16.
  EXPECT_LE(test::max_error_beyond_rounding(fast.y, exact.y.as<double>()),
            test::bf16_half_ulp(1.0));
  EXPECT_LE(test::max_error_beyond_rounding(fast.dx, exact.dx.as<double>()),
            test::bf16_half_ulp(1.0));
}

TEST(Bf16, EmbeddingsRoundOnceAndAddUpInF32) {
  with_threads([](TestRun& run) {
    for (const std::int64_t C : kWidths) {
      auto tokens = random_tokens({3, 37}, 11, 1);
      auto table = random_tensor<Bf16>({40, C}, 2);
      auto wide_table = table.as<float>();
      OwnedTensor<Bf16> y({3, 37, C});
      OwnedTensor<float> y32(y.shape);
      embedding_forward(run, tokens, table, y);
      embedding_forward(run, tokens, wide_table, y32);
      EXPECT_EQ(y, rounded(y32));
      auto expected = y;
      position_embedding_forward(run, {}, table, y);
      position_embedding_forward(run, {}, wide_table, y32);
      EXPECT_EQ(y, rounded(y32));
      ref::position_embedding_forward<Bf16>({}, table, expected);
      EXPECT_EQ(y, expected);
      y32 = y.as<float>();
      auto dtable = random_tensor<float>({40, C}, 3);
      auto dtable32 = dtable, by_ref = dtable;
      embedding_backward(run, tokens, y, dtable);
      embedding_backward(run, tokens, y32, dtable32);
      EXPECT_EQ(dtable, dtable32);
      position_embedding_backward(run, {}, y, dtable);
      position_embedding_backward(run, {}, y32, dtable32);
      EXPECT_EQ(dtable, dtable32);
      OwnedTensor<std::int32_t> starts({3, 37});  // two documents a row
      for (std::int64_t i = 0; i < starts.size(); ++i) starts[i] = i % 37 < 20 ? 0 : 20;
      position_embedding_backward(run, starts, y, dtable);
      position_embedding_backward(run, starts, y32, dtable32);
      EXPECT_EQ(dtable, dtable32);
      ref::embedding_backward<Bf16>(tokens, y, by_ref);
      ref::position_embedding_backward<Bf16>({}, y, by_ref);
      ref::position_embedding_backward<Bf16>(starts, y, by_ref);
      EXPECT_EQ(dtable, by_ref);
    }
  });
}

TEST(Bf16, RopeRoundsOnceWithAnF32Table) {
  with_threads([](TestRun& run) {
    for (const std::int64_t D : {2, 6, 34, 64}) {
      const HeadLayout heads = {3, 1, D};
      auto qkv = random_tensor<Bf16>({2, 19, heads.qkv_width()}, 1);
      auto table = random_tensor<float>({40, D}, 2);
      for (const bool inverse : {false, true}) {
        auto wide = qkv.as<float>();
        auto by_ref = qkv;
        rope(run, heads, table, {}, inverse, wide);
        ref::rope<Bf16>(heads, table, {}, inverse, by_ref);
        rope(run, heads, table, {}, inverse, qkv);
        EXPECT_EQ(qkv, rounded(wide));
        EXPECT_LE(test::max_error_beyond_rounding(by_ref, wide.as<double>()), 0x1p-23);
      }
    }
  });
}

TEST(Bf16, QkNormRoundsOnceAndAddsUpInF32) {
  with_threads([](TestRun& run) {
    for (const std::int64_t D : {1, 17, 64}) {
      const HeadLayout heads = {3, 1, D};
      const std::int64_t statistics = 4;
      auto x = random_tensor<Bf16>({2, 19, heads.qkv_width()}, 1);
      auto dy = random_tensor<Bf16>(x.shape, 2);
      auto q_weight = random_tensor<Bf16>({D}, 3), k_weight = random_tensor<Bf16>({D}, 4);
      auto x32 = x.as<float>(), dy32 = dy.as<float>();
      auto q32 = q_weight.as<float>(), k32 = k_weight.as<float>();
      OwnedTensor<Bf16> y(x.shape), dx(x.shape), ref_y(x.shape), ref_dx(x.shape);
      OwnedTensor<float> y32(x.shape), dx32(x.shape);
      OwnedTensor<float> rstd({2, 19, statistics}), rstd32 = rstd, ref_rstd = rstd;
      OwnedTensor<float> dweights({2, D}), dweights32 = dweights, ref_dweights = dweights;
      qk_norm_forward(run, heads, 1e-6, x, q_weight, k_weight, y, rstd);
      qk_norm_forward(run, heads, 1e-6, x32, q32, k32, y32, rstd32);
      qk_norm_backward(run, heads, 1e-6, x, q_weight, k_weight, rstd, dy, dx, dweights);
      qk_norm_backward(run, heads, 1e-6, x32, q32, k32, rstd32, dy32, dx32, dweights32);
      EXPECT_EQ(y, rounded(y32));
      EXPECT_EQ(rstd, rstd32);
      EXPECT_EQ(dx, rounded(dx32));
      EXPECT_EQ(dweights, dweights32);
      ref::qk_norm_forward<Bf16>(heads, 1e-6, x, q_weight, k_weight, ref_y, ref_rstd);
      ref::qk_norm_backward<Bf16>(heads, 1e-6, x, q_weight, k_weight, rstd, dy, ref_dx,
                                  ref_dweights);
      EXPECT_LE(ulps_apart(y, ref_y), 1);
      EXPECT_LE(test::max_abs_difference(dweights, ref_dweights), 1e-5 * test::max_abs(dweights));
    }
  });
}

}  // namespace
}  // namespace atl::ops
