// Attention of a block of queries and a block of keys on the fake GPU, with and without tensor
// cores, against ref in double: results that join those of other keys, and gradients that are
// added.

#include "atoll/ops/attention_block/attention_block.h"

#include <gtest/gtest.h>

#include <limits>

#include "atoll/ops/attention_block/ref.h"
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
  std::int64_t rows, keys;  // R and S
  AttentionBlock block;
  bool is_first = false;
  std::int64_t window = 0;
  std::int64_t document = 0;  ///< length of each; 0: one document
  double softcap = 0;

  AttentionScores scores() const { return {kScale, softcap}; }
};
// Own keys, earlier ones, both stretches of a rank's rows; windows that see some of the keys or
// none; documents that begin among the queries, among the keys or between them.
const Case kCases[] = {
    {{1, 1, 8}, 1, 1, 1, {0, 0, 1, 0, 0, 1}, true},
    {{2, 1, 64}, 2, 70, 70, {0, 0, 70, 0, 0, 70}, true},
    {{2, 2, 16}, 1, 40, 40, {20, 60, 20, 20, 60, 20}},
    {{2, 1, 8}, 2, 70, 80, {3, 100, 66, 9, 10, 70}},
    {{1, 1, 128}, 1, 70, 70, {0, 70, 70, 0, 0, 70}, true, 50},
    {{3, 1, 24}, 1, 33, 70, {0, 64, 33, 0, 0, 64}, false, 40, 70},
    {{1, 1, 64}, 1, 66, 66, {0, 200, 66, 0, 0, 66}, false, 30},
};
// The same without tensor cores, a warp for each row.
const Case kPlainCases[] = {
    {{2, 1, 6}, 2, 9, 9, {0, 0, 9, 0, 0, 9}, true},
    {{2, 1, 6}, 1, 7, 12, {1, 20, 5, 2, 3, 9}, false, 0, 13},
    {{1, 1, 33}, 1, 6, 6, {0, 10, 6, 0, 0, 6}, false, 7},
    {{2, 2, 6}, 1, 5, 5, {0, 40, 5, 0, 0, 5}, false, 3},
    {{2, 1, 6}, 2, 9, 9, {0, 0, 9, 0, 0, 9}, true, 0, 0, 0.4},
    {{2, 1, 64}, 1, 7, 12, {1, 20, 5, 2, 3, 9}, false, 0, 13, 0.4},
};

template <typename T, typename A>
struct Operands {
  OwnedTensor<T> qkv, kv, out, dout;
  OwnedTensor<A> sums, lse, dqkv, dkv;
  OwnedTensor<std::int32_t> positions;
  bool operator==(const Operands&) const = default;
};

template <typename T>
Operands<T, float> make(const Case& c) {
  const Shape rows = {c.B, c.rows, c.heads.qkv_width()}, out = {c.B, c.rows, c.heads.query_width()};
  const Shape keys = {c.B, c.keys, 2 * c.heads.kv_width()};
  Operands<T, float> o{random_tensor<T>(rows, 1),
                       random_tensor<T>(keys, 2),
                       random_tensor<T>(out, 3),
                       random_tensor<T>(out, 4),
                       random_tensor<float>(out, 5),
                       random_tensor<float>({c.B, c.heads.num_heads, c.rows}, 6),
                       random_tensor<float>(rows, 7),
                       random_tensor<float>(keys, 8),
                       OwnedTensor<std::int32_t>({c.B, c.rows})};
  for (std::int64_t i = 0; i < o.lse.size(); ++i) {
    o.lse[i] += 3;                    // of more keys than the block has
    if (!c.is_first && i % 5 == 4) {  // a query that has seen none
      o.lse[i] = -std::numeric_limits<float>::infinity();
    }
  }
  for (std::int64_t i = 0; i < o.positions.size(); ++i) {
    const std::int64_t token = c.block.first_query + i % c.rows - c.block.query_row;
    o.positions[i] = static_cast<std::int32_t>(
        std::max<std::int64_t>(0, c.document > 0 ? token % c.document : token));
  }
  return o;
}

AttentionMask mask_of(const Case& c, Tensor positions) {
  return {.window = c.window, .positions = c.document > 0 ? positions : Tensor()};
}

template <typename T>
Operands<double, double> exact_of(const Operands<T, float>& o) {
  return {o.qkv.template as<double>(),  o.kv.template as<double>(),   o.out.template as<double>(),
          o.dout.template as<double>(), o.sums.template as<double>(), o.lse.template as<double>(),
          o.dqkv.template as<double>(), o.dkv.template as<double>(),  o.positions};
}

// max |fast - exact| / max(1, max |exact|).
double error(const OwnedTensor<float>& fast, const OwnedTensor<double>& exact) {
  return test::max_abs_difference(fast, exact) / std::max(1.0, test::max_abs(exact));
}

std::string name_of(const Case& c) {
  return fmt::format(
      "heads {}/{} of {}, {} queries from {} on, {} keys from {} on, window {}, "
      "documents of {}",
      c.heads.num_heads, c.heads.num_kv_heads, c.heads.head_dim, c.block.num_queries,
      c.block.first_query, c.block.num_keys, c.block.first_key, c.window, c.document);
}

template <typename T>
void check_forward(const Case& c, double bound) {
  const auto start = make<T>(c);
  const auto got = test::in_every_order(
      start,
      [&](Gpu& gpu, Operands<T, float>& o) {
        const AttentionMask mask = mask_of(c, gpu(o.positions));
        attention_block_forward(gpu.run, c.heads, c.scores(), mask, c.block, c.is_first, gpu(o.qkv),
                                gpu(o.kv), gpu(o.sums), gpu(o.lse));
      },
      kDiffers, /*has_products=*/true);
  auto exact = exact_of(start);
  test::TestRun host;
  ref::attention_block_forward<double>(host.run, c.heads, c.scores(), mask_of(c, exact.positions),
                                       c.block, c.is_first, exact.qkv, exact.kv, exact.sums,
                                       exact.lse);
  EXPECT_LE(error(got.sums, exact.sums), bound);
  for (std::int64_t i = 0; i < got.lse.size(); ++i) {
    if (std::isinf(exact.lse[i])) {
      EXPECT_EQ(static_cast<double>(got.lse[i]), exact.lse[i]) << i;
    } else {
      EXPECT_NEAR(got.lse[i], exact.lse[i], 1e-5) << i;
    }
  }
}

template <typename T>
void check_backward(const Case& c, double bound) {
  auto start = make<T>(c);
  for (float& lse : start.lse.values) lse = std::isinf(lse) ? 3.0F : lse;
  const auto got = test::in_every_order(
      start,
      [&](Gpu& gpu, Operands<T, float>& o) {
        const AttentionMask mask = mask_of(c, gpu(o.positions));
        attention_block_backward(gpu.run, c.heads, c.scores(), mask, c.block, gpu(o.qkv), gpu(o.kv),
                                 gpu(o.out), gpu(o.lse), gpu(o.dout), gpu(o.dqkv), gpu(o.dkv));
      },
      kDiffers, /*has_products=*/true);
  auto exact = exact_of(start);
  test::TestRun host;
  ref::attention_block_backward<double>(host.run, c.heads, c.scores(), mask_of(c, exact.positions),
                                        c.block, exact.qkv, exact.kv, exact.out, exact.lse,
                                        exact.dout, exact.dqkv, exact.dkv);
  EXPECT_LE(error(got.dqkv, exact.dqkv), bound);
  EXPECT_LE(error(got.dkv, exact.dkv), bound);
}

TEST(CudaAttentionBlock, MatchesRefInDouble) {
  for (const Case& c : kPlainCases) {
    SCOPED_TRACE(name_of(c));
    check_forward<float>(c, 1e-5);
    check_backward<float>(c, 1e-5);
    check_forward<Bf16>(c, 1e-5);
    check_backward<Bf16>(c, 1e-5);
  }
}

// Probabilities and ds are rounded to half of 2^-8 of themselves before they are multiplied; sums
// are kept in f32.
TEST(CudaAttentionBlock, MatchesRefInBf16) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(name_of(c));
    check_forward<Bf16>(c, 0x1p-9);
    check_backward<Bf16>(c, 0x1p-8);
  }
}

TEST(CudaAttentionBlock, UsesTensorCoresWhereHeadsAllow) {
  for (const bool is_bf16 : {true, false}) {
    Gpu gpu;
    const Case c = kCases[2];
    auto use = [&]<typename T>(T) {
      auto o = make<T>(c);
      attention_block_forward(gpu.run, c.heads, c.scores(), {}, c.block, true, gpu(o.qkv),
                              gpu(o.kv), gpu(o.sums), gpu(o.lse));
      gpu.finish();
    };
    is_bf16 ? use(Bf16{}) : use(float{});
    EXPECT_EQ(gpu.device().totals().contains("attention_mma_forward"), is_bf16);
  }
}

}  // namespace
}  // namespace atl::ops
