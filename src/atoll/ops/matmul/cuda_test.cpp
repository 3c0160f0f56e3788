// What is added to products on a GPU: by the library there, by ref on the fake one.

#include "atoll/ops/matmul/matmul.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/ops/activation/ref.h"
#include "atoll/ops/cuda/testing.h"

namespace atl::ops {
namespace {

using test::Gpu;
using test::OwnedTensor;
using test::random_tensor;

TEST(CudaMatmul, AddsAResidualAndRoundsOnce) {
  constexpr std::int64_t kRows = 6, kIn = 16, kOut = 24;
  Gpu gpu;
  OwnedTensor<Bf16> a = random_tensor<Bf16>({kRows, kIn}, 1);
  OwnedTensor<Bf16> b = random_tensor<Bf16>({kOut, kIn}, 2);
  OwnedTensor<Bf16> bias = random_tensor<Bf16>({kOut}, 3);
  OwnedTensor<Bf16> residual = random_tensor<Bf16>({kRows, kOut}, 4);
  OwnedTensor<Bf16> c({kRows, kOut}, to_bf16(1e30F));
  const OwnedTensor<Bf16> before = residual;
  matmul_add(gpu.run, Transpose::kNT, gpu(a), gpu(b), gpu(residual), gpu(c), gpu(bias));
  gpu.finish();
  EXPECT_THAT(gpu.device().library_calls(),
              testing::ElementsAre("matmul nt 6 x 24 x 16, bf16 bf16 bf16, bias, residual"));
  EXPECT_EQ(residual, before);
  for (std::int64_t i = 0; i < kRows; ++i) {
    for (std::int64_t j = 0; j < kOut; ++j) {
      double sum = double{to_f32(bias[j])} + to_f32(residual[i * kOut + j]);
      for (std::int64_t k = 0; k < kIn; ++k) {
        sum += double{to_f32(a[i * kIn + k])} * to_f32(b[j * kIn + k]);
      }
      // Half a unit in the last place of bf16; two roundings may be nearly twice that.
      EXPECT_NEAR(to_f32(c[i * kOut + j]), sum, std::abs(sum) * 0x1p-8 * 1.01);
    }
  }
}

struct GeluOperands {
  OwnedTensor<Bf16> x, weight, bias, hidden, h;
};
GeluOperands gelu_operands(std::int64_t width) {
  return {random_tensor<Bf16>({6, 16}, 1), random_tensor<Bf16>({width, 16}, 2),
          random_tensor<Bf16>({width}, 3), OwnedTensor<Bf16>({6, width}, to_bf16(1e30F)),
          OwnedTensor<Bf16>({6, width}, to_bf16(1e30F))};
}
void run_gelu(Gpu& gpu, Gelu kind, GeluOperands& o) {
  linear_gelu(gpu.run, kind, gpu(o.x), gpu(o.weight), gpu(o.bias), gpu(o.hidden), gpu(o.h));
  gpu.finish();
}

TEST(CudaMatmul, WritesWhatGeluIsTakenOfAndGelu) {
  Gpu gpu;
  GeluOperands o = gelu_operands(24);
  run_gelu(gpu, Gelu::kTanh, o);
  EXPECT_THAT(gpu.device().library_calls(),
              testing::ElementsAre("matmul nt 6 x 24 x 16, bf16 bf16 bf16, bias, gelu"));
  EXPECT_TRUE(gpu.device().totals().empty()) << "no kernel of ours";
  for (std::int64_t i = 0; i < 6 * 24; ++i) {
    double sum = to_f32(o.bias[i % 24]);
    for (std::int64_t k = 0; k < 16; ++k) {
      sum += double{to_f32(o.x[i / 24 * 16 + k])} * to_f32(o.weight[i % 24 * 16 + k]);
    }
    EXPECT_NEAR(to_f32(o.hidden[i]), sum, std::abs(sum) * 0x1p-8 * 1.01);
    const double y = ref::gelu(Gelu::kTanh, double{to_f32(o.hidden[i])}).y;
    EXPECT_NEAR(to_f32(o.h[i]), y, std::abs(y) * 0x1p-8 * 1.01);
  }
}

// Each reason for which the library cannot, and then a kernel does.
TEST(CudaMatmul, TakesGeluByAKernelWhereTheLibraryHasNone) {
  for (const auto& [kind, width] : {std::pair{Gelu::kErf, 24}, {Gelu::kTanh, 20}}) {
    Gpu gpu;
    GeluOperands o = gelu_operands(width);
    run_gelu(gpu, kind, o);
    EXPECT_EQ(gpu.device().totals().count("gelu_forward"), 1u);
    for (std::int64_t i = 0; i < 6 * width; ++i) {
      const double y = ref::gelu(kind, double{to_f32(o.hidden[i])}).y;
      EXPECT_NEAR(to_f32(o.h[i]), y, std::abs(y) * 0x1p-8 * 1.01 + 1e-6);
    }
  }
}

}  // namespace
}  // namespace atl::ops
