// Products with int8 and bf16 weights on the fake GPU: against ref in double, and where activations
// are rounded too, its bits.

#include <gtest/gtest.h>

#include "atoll/base/error.h"
#include "atoll/ops/cuda/testing.h"
#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/ops/int8/int8.h"
#include "atoll/ops/int8/int8_arithmetic.h"
#include "atoll/ops/int8/ref.h"
#include "atoll/ops/matmul/grouped_matmul.h"
#include "atoll/ops/matmul/matmul.h"
#include "atoll/ops/matmul/ref.h"

namespace atl::ops {
namespace {

using test::Gpu;
using test::OwnedTensor;
using test::random_tensor;
using test::TestRun;

const auto kDiffers = [](std::uint64_t order) { ADD_FAILURE() << "other bits in order " << order; };

struct Int8Operands {
  OwnedTensor<float> x, scales, bias, y;
  OwnedTensor<std::uint8_t> values;
  bool operator==(const Int8Operands&) const = default;
  Int8Matrix matrix() { return {values, scales}; }
};

Int8Operands operands(std::int64_t m, std::int64_t n, std::int64_t k) {
  Int8Operands o{random_tensor<float>({m, k}, 1),
                 OwnedTensor<float>(int8_scales_spec({n, k}).shape), random_tensor<float>({n}, 2),
                 OwnedTensor<float>({m, n}, 1e30F), OwnedTensor<std::uint8_t>({n, k})};
  TestRun host;
  round_to_int8(host, random_tensor<float>({n, k}, 3).view(), o.matrix());
  return o;
}

Int8Operands multiplied(const Int8Operands& start, bool has_bias) {
  return test::in_every_order(
      start,
      [&](Gpu& gpu, Int8Operands& o) {
        const Int8Matrix w = {gpu(o.values), gpu(o.scales)};
        const Tensor x = gpu(o.x), y = gpu(o.y), bias = gpu(o.bias);
        const std::size_t planned = matmul_int8_scratch_bytes(x.spec(), w.values.shape());
        ASSERT_LE(planned, gpu.run.scratch.size());
        gpu.run.scratch = gpu.run.scratch.first(planned);
        matmul_int8(gpu.run, x, w, y, has_bias ? bias : Tensor());
      },
      kDiffers, /*has_products=*/start.x.shape.num_rows() > 8);
}

struct Sizes {
  std::int64_t m, n, k;
};
// One row and several; rows of weights that a warp has two of, or one; columns that make whole
// packs, whole groups, or neither; a vector of columns longer than a warp's.
constexpr Sizes kSizes[] = {{1, 1, 1},   {1, 9, 80},   {2, 2, 64},   {8, 5, 67},
                            {3, 4, 528}, {9, 3, 130},  {1, 33, 192}, {11, 17, 80},
                            {8, 9, 132}, {5, 45, 516}, {2, 8, 64}};

TEST(CudaInt8, ProductsAreThoseOfTheWidenedWeights) {
  for (const auto& [m, n, k] : kSizes) {
    for (const bool has_bias : {false, true}) {
      const Int8Operands start = operands(m, n, k);
      Int8Operands got = multiplied(start, has_bias);
      OwnedTensor<double> exact({m, n});
      const auto x = start.x.as<double>(), bias = start.bias.as<double>();
      TestRun host;
      ref::matmul_int8<double>(host.run.threads(), m, x.values.data(), got.matrix(),
                               has_bias ? bias.values.data() : nullptr, exact.values.data());
      // As on the host; see int8_test.cpp.
      const auto terms = static_cast<double>(k + 1);
      EXPECT_LE(max_abs_difference(got.y, exact), 2 * terms * terms * 0x1p-24)
          << m << " " << n << " " << k;
    }
  }
}

// A block of widened weights holds 2^20 elements.
TEST(CudaInt8, AMatrixOfSeveralBlocksIsWidenedBlockByBlock) {
  const std::int64_t m = 9, n = 5, k = 400'000;
  Gpu gpu(3, std::size_t{32} << 20);
  Int8Operands o = operands(m, n, k);
  const Int8Matrix w = {gpu(o.values), gpu(o.scales)};
  matmul_int8(gpu.run, gpu(o.x), w, gpu(o.y), gpu(o.bias));
  gpu.finish();
  OwnedTensor<float> expected({m, n});
  TestRun host;
  ref::matmul_int8<float>(host.run.threads(), m, o.x.values.data(), o.matrix(), nullptr,
                          expected.values.data());
  for (std::int64_t i = 0; i < m * n; ++i) {
    EXPECT_EQ(o.y[i], expected[i] + o.bias[i % n]) << i;  // the fake library adds as ref does
  }
}

class Rounded : public testing::Test {
 protected:
  void SetUp() override { set_int8_arithmetic(Int8Arithmetic::kVector); }
  void TearDown() override { set_int8_arithmetic(Int8Arithmetic::kF32); }
};

TEST_F(Rounded, ActivationsInInt8GiveTheBitsOfRef) {
  for (const auto& [m, n, k] : kSizes) {
    Int8Operands start = operands(m, n, k);
    for (std::int64_t c = 0; c < std::min<std::int64_t>(k, 64); ++c) start.x[c] *= 1e-38F;
    for (const bool has_bias : {false, true}) {
      Int8Operands got = multiplied(start, has_bias);
      OwnedTensor<float> exact({m, n});
      TestRun host;
      ref::matmul_rounded<float>(host.run.threads(), m, start.x.values.data(), got.matrix(),
                                 has_bias ? start.bias.values.data() : nullptr,
                                 exact.values.data());
      EXPECT_EQ(got.y, exact) << m << " " << n << " " << k;
    }
  }
}

TEST_F(Rounded, WhatIsNotFiniteMakesItsRowNaN) {
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    const std::int64_t m = 3, n = 4, k = 80;
    Int8Operands o = operands(m, n, k);
    o.x[k + 70] = bad;
    Gpu gpu;
    const Int8Matrix w = {gpu(o.values), gpu(o.scales)};
    matmul_int8(gpu.run, gpu(o.x), w, gpu(o.y));
    gpu.finish();
    for (std::int64_t i = 0; i < m * n; ++i) EXPECT_EQ(std::isnan(o.y[i]), i / n == 1) << i;
  }
}

struct Bf16Operands {
  OwnedTensor<float> x, bias, y;
  OwnedTensor<Bf16> w;
  bool operator==(const Bf16Operands&) const = default;
};

TEST(CudaBf16Weights, ProductsWithF32MatchDouble) {
  for (const auto& [m, n, k] : kSizes) {
    const Bf16Operands start{random_tensor<float>({m, k}, 1), random_tensor<float>({n}, 2),
                             OwnedTensor<float>({m, n}, 1e30F), random_tensor<Bf16>({n, k}, 3)};
    const auto got = test::in_every_order(
        start,
        [&](Gpu& gpu, Bf16Operands& o) {
          const Tensor x = gpu(o.x), w = gpu(o.w);
          const std::size_t planned = matmul_scratch_bytes(Transpose::kNT, x.spec(), w.spec());
          gpu.run.scratch = gpu.run.scratch.first(planned);
          matmul(gpu.run, Transpose::kNT, x, w, gpu(o.y), gpu(o.bias));
        },
        kDiffers, /*has_products=*/m > 8);
    OwnedTensor<double> x = start.x.as<double>(), w = start.w.as<double>(),
                        bias = start.bias.as<double>(), exact({m, n});
    TestRun host;
    matmul(host, Transpose::kNT, x, w, exact, bias);
    const auto terms = static_cast<double>(k + 1);
    EXPECT_LE(max_abs_difference(got.y, exact), 2 * terms * terms * 0x1p-24)
        << m << " " << n << " " << k;
  }
}

// Rows of groups, as experts have them: none, one, more than a tile has, and some left over.
struct Groups {
  std::vector<std::int32_t> offsets;
  std::int64_t rows, n, k;
  std::int64_t count() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
};
std::vector<std::int32_t> many_groups() {
  std::vector<std::int32_t> offsets(41, 0);
  for (std::size_t g = 3; g < offsets.size(); ++g) offsets[g] = g < 37 ? 5 : 22;
  return offsets;
}
const Groups kGroups[] = {{{0, 0, 1, 11, 11, 12}, 14, 5, 80},  // few rows, at the mean
                          {{0, 1, 1, 2, 2}, 3, 9, 67},         // one
                          {{0, 1, 1, 2, 2}, 3, 9, 80},
                          {many_groups(), 24, 3, 64},  // which a warp finds in two turns
                          {{0, 3, 70}, 75, 5, 130},    // many
                          {{0, 0}, 2, 3, 64},
                          {{0, 0, 9, 11, 14}, 16, 11, 148}};  // rows of W that a warp has eight of

struct GroupedOperands {
  OwnedTensor<std::int32_t> offsets;
  OwnedTensor<float> x, y;
  OwnedTensor<Bf16> w;
  OwnedTensor<std::uint8_t> values;
  OwnedTensor<float> scales;
  bool operator==(const GroupedOperands& o) const { return y == o.y; }  // x has NaN
};

GroupedOperands grouped_operands(const Groups& g) {
  const Shape w = {g.count() * g.n, g.k};
  GroupedOperands o{OwnedTensor<std::int32_t>({g.count() + 1}),
                    random_tensor<float>({g.rows, g.k}, 1),
                    OwnedTensor<float>({g.rows, g.n}, 1e30F),
                    random_tensor<Bf16>(w, 3),
                    OwnedTensor<std::uint8_t>(w),
                    OwnedTensor<float>(int8_scales_spec(w).shape)};
  o.offsets.values = g.offsets;
  for (std::int64_t i = g.offsets.back() * g.k; i < g.rows * g.k; ++i) o.x[i] = std::nanf("");
  TestRun host;
  round_to_int8(host, random_tensor<float>(w, 3).view(), {o.values, o.scales});
  return o;
}

// On the fake GPU in every order, `kernel` once; a real GPU gives the same bits, as no library is
// asked.
template <typename Multiply>
GroupedOperands grouped(const Groups& g, const char* kernel, Multiply&& multiply) {
  return test::in_every_order(
      grouped_operands(g),
      [&](Gpu& gpu, GroupedOperands& o) {
        const Tensor x = gpu(o.x), offsets = gpu(o.offsets), y = gpu(o.y);
        const std::size_t planned =
            grouped_matmul_int8_scratch_bytes(x.spec(), o.values.shape, g.count());
        gpu.run.scratch = gpu.run.scratch.first(planned);
        multiply(gpu, o, x, offsets, y);
        if (const auto* fake =
                dynamic_cast<fake_cuda::FakeCudaDevice*>(&gpu.run.stream->device())) {
          gpu.run.stream->synchronize();
          EXPECT_EQ(fake->totals().at(kernel).launches, 1);
        }
      },
      kDiffers);
}

// Of each row with its group's matrix; zeroes where a row is left over.
template <typename Weight>
void expect_products(const Groups& g, const GroupedOperands& got, Weight&& weight) {
  std::size_t group = 0;
  for (std::int64_t row = 0; row < g.rows; ++row) {
    while (group < g.offsets.size() - 1 && row >= g.offsets[group + 1]) ++group;
    for (std::int64_t n = 0; n < g.n; ++n) {
      double exact = 0;
      const std::int64_t of_w = static_cast<std::int64_t>(group) * g.n + n;
      for (std::int64_t k = 0; row < g.offsets.back() && k < g.k; ++k) {
        exact += static_cast<double>(got.x[row * g.k + k]) * weight(of_w, k);
      }
      const auto terms = static_cast<double>(g.k + 1);
      EXPECT_NEAR(got.y[row * g.n + n], exact, 2 * terms * terms * 0x1p-24) << row << " " << n;
    }
  }
}

const char* kernel_for(const Groups& g) {
  return g.rows <= 8 * g.count() ? "few_rows" : "product_tiles";
}

TEST(CudaGroupedBf16Weights, GroupsHaveTheirOwnMatrices) {
  for (const Groups& g : kGroups) {
    SCOPED_TRACE(g.rows);
    const GroupedOperands got = grouped(
        g, kernel_for(g), [](Gpu& gpu, GroupedOperands& o, Tensor x, Tensor offsets, Tensor y) {
          grouped_matmul(gpu.run, Transpose::kNT, x, gpu(o.w), offsets, y);
        });
    expect_products(g, got, [&](std::int64_t row, std::int64_t k) {
      return static_cast<double>(to_f32(got.w[row * g.k + k]));
    });
  }
}

TEST(CudaGroupedInt8, GroupsHaveTheirOwnMatrices) {
  for (const Groups& g : kGroups) {
    SCOPED_TRACE(g.rows);
    const GroupedOperands got = grouped(
        g, kernel_for(g), [](Gpu& gpu, GroupedOperands& o, Tensor x, Tensor offsets, Tensor y) {
          grouped_matmul_int8(gpu.run, x, {gpu(o.values), gpu(o.scales)}, offsets, y);
        });
    const std::int64_t per_row = got.scales.shape.dim(1);
    expect_products(g, got, [&](std::int64_t row, std::int64_t k) {
      return static_cast<double>(static_cast<std::int8_t>(got.values[row * g.k + k])) *
             static_cast<double>(got.scales[row * per_row + k / kInt8Group]);
    });
  }
}

TEST_F(Rounded, GroupsInInt8GiveTheBitsOfTheHost) {
  for (const Groups& g : kGroups) {
    SCOPED_TRACE(g.rows);
    GroupedOperands got = grouped(
        g, "rounded_rows", [](Gpu& gpu, GroupedOperands& o, Tensor x, Tensor offsets, Tensor y) {
          grouped_matmul_int8(gpu.run, x, {gpu(o.values), gpu(o.scales)}, offsets, y);
        });
    GroupedOperands expected = grouped_operands(g);
    TestRun host;
    grouped_matmul_int8(host, expected.x, {expected.values, expected.scales}, expected.offsets,
                        expected.y);
    EXPECT_EQ(got.y, expected.y);
  }
}

struct Lookup {
  OwnedTensor<std::int32_t> tokens;
  OwnedTensor<std::uint8_t> values;
  OwnedTensor<float> scales, y;
  bool operator==(const Lookup&) const = default;
};

TEST(CudaInt8, RowsOfATableAreThoseOfTheHost) {
  for (const std::int64_t width : {1, 64, 67, 132}) {
    Int8Operands table = operands(1, 7, width);
    const Lookup start{test::random_tokens({2, 9}, 7, 4), table.values, table.scales,
                       OwnedTensor<float>({2, 9, width}, 1e30F)};
    const auto got = test::in_every_order(
        start,
        [&](Gpu& gpu, Lookup& s) {
          embedding_int8(gpu.run, gpu(s.tokens), {gpu(s.values), gpu(s.scales)}, gpu(s.y));
        },
        kDiffers);
    Lookup expected = start;
    TestRun host;
    embedding_int8(host, expected.tokens, {expected.values, expected.scales}, expected.y);
    EXPECT_EQ(got, expected) << width;
  }
}

// What no kernel does is told to the user, by the op's name; on a CPU it would be a mistake of
// atoll's.
TEST(CudaOps, WithoutAKernelNameTheOpAndWhatToDo) {
  Gpu gpu;
  auto a = random_tensor<float>({2, 3}, 1);
  auto b = random_tensor<Bf16>({3, 2}, 2);
  OwnedTensor<float> c({2, 2});
  try {
    matmul(gpu.run, Transpose::kNN, gpu(a), gpu(b), gpu(c));
    FAIL() << "bf16 weights that are not transposed were multiplied";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    EXPECT_STREQ(error.what(),
                 "matmul_nn: no kernel of it for GPUs can serve this call: operands of two dtypes; "
                 "compute this on a CPU (--device.kind=cpu, or --device=cpu of generate and eval)");
  }
}

TEST(CudaOps, OfWhichThereIsNoKernelAtAllSaySo) {
  Gpu gpu;
  const Implementation<int> list[] = {
      {"ref", [](atl::Run&, const int&) { return "not in host memory"; }}};
  try {
    dispatch<int>("unheard_of", list, gpu.run, 1);
    FAIL() << "an op without a kernel was served";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    EXPECT_STREQ(error.what(),
                 "unheard_of: this version has no kernel of it for GPUs; compute this on a CPU "
                 "(--device.kind=cpu, or --device=cpu of generate and eval)");
  }
  TestRun host;
  try {
    dispatch<int>("unheard_of", list, host.run, 1);
    FAIL() << "an op without a kernel was served";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInternal);
  }
}

}  // namespace
}  // namespace atl::ops
