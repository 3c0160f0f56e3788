// What cuBLASLt is told can be read back without a GPU.

#include "atoll/device/cuda/products.h"

#include <gtest/gtest.h>

namespace atl::cuda {
namespace {

template <typename T>
T read(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute) {
  T value{};
  std::size_t written = 0;
  check(cublasLtMatmulDescGetAttribute(description, attribute, &value, sizeof value, &written),
        "reading a description");
  return value;
}

std::uint64_t read(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute) {
  std::uint64_t value = 0;
  std::size_t written = 0;
  check(cublasLtMatrixLayoutGetAttribute(layout, attribute, &value, sizeof value, &written),
        "reading a layout");
  return value;
}

std::uint32_t type(cublasLtMatrixLayout_t layout) {
  std::uint32_t value = 0;
  std::size_t written = 0;
  check(cublasLtMatrixLayoutGetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_TYPE, &value, sizeof value,
                                         &written),
        "reading a layout");
  return value;
}

struct Sizes {
  std::uint64_t rows, columns, stride;
  bool operator==(const Sizes&) const = default;
};
Sizes sizes(cublasLtMatrixLayout_t layout) {
  return {read(layout, CUBLASLT_MATRIX_LAYOUT_ROWS), read(layout, CUBLASLT_MATRIX_LAYOUT_COLS),
          read(layout, CUBLASLT_MATRIX_LAYOUT_LD)};
}

// op(left) (n, k), op(right) (k, m), result (n, m), columns first: what c^T = op(b)^T op(a)^T
// needs.
void expect_sizes(const Product& p, Sizes left, Sizes right) {
  const ProductDescription d(p);
  EXPECT_EQ(sizes(d.left), left);
  EXPECT_EQ(sizes(d.right), right);
  EXPECT_EQ(sizes(d.result), (Sizes{20, 10, 20}));
  EXPECT_EQ(read<std::int32_t>(d.matmul, CUBLASLT_MATMUL_DESC_TRANSA),
            p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  EXPECT_EQ(read<std::int32_t>(d.matmul, CUBLASLT_MATMUL_DESC_TRANSB),
            p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  EXPECT_EQ(read<std::int32_t>(d.matmul, CUBLASLT_MATMUL_DESC_EPILOGUE),
            p.bias == nullptr ? CUBLASLT_EPILOGUE_DEFAULT : CUBLASLT_EPILOGUE_BIAS);
}

TEST(CudaProducts, AreDescribedColumnsFirst) {
  Product p{.m = 10, .n = 20, .k = 30};
  expect_sizes(p, {20, 30, 20}, {30, 10, 30});
  p.transpose_b = true;
  expect_sizes(p, {30, 20, 30}, {30, 10, 30});
  p.bias = &p;
  expect_sizes(p, {30, 20, 30}, {30, 10, 30});
  p = {.transpose_a = true, .m = 10, .n = 20, .k = 30};
  expect_sizes(p, {20, 30, 20}, {10, 30, 10});
}

TEST(CudaProducts, AddAResidualInThePlaceOfC) {
  float c = 0, residual = 0;
  const Product plain{.c = &c};
  EXPECT_EQ(plain.addend(), &c);
  EXPECT_EQ(plain.beta(), 0);
  const Product accumulates{.c = &c, .accumulate = true};
  EXPECT_EQ(accumulates.addend(), &c);
  EXPECT_EQ(accumulates.beta(), 1);
  const Product adds{.c = &c, .residual = &residual};
  EXPECT_EQ(adds.addend(), &residual);
  EXPECT_EQ(adds.beta(), 1);
}

TEST(CudaProducts, WriteWhatGeluIsTakenOf) {
  float bias = 0, hidden = 0;
  Product p{.m = 10, .n = 24, .k = 32, .gelu_of = &hidden};
  const auto expect = [&](cublasLtEpilogue_t epilogue) {
    const ProductDescription d(p);
    EXPECT_EQ(read<std::int32_t>(d.matmul, CUBLASLT_MATMUL_DESC_EPILOGUE), epilogue);
    EXPECT_EQ(read<void*>(d.matmul, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER), &hidden);
    EXPECT_EQ(read<std::int64_t>(d.matmul, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD), 24);
  };
  expect(CUBLASLT_EPILOGUE_GELU_AUX);
  p.bias = &bias;
  expect(CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
}

// Left is b: it brings its scales along.
TEST(CudaProducts, OfEightBitsHaveTheScalesOfTheirOperands) {
  const float of_a = 1, of_b = 2;
  const Product p{.transpose_b = true,
                  .m = 16,
                  .n = 32,
                  .k = 48,
                  .of_a = {CUDA_R_8F_E5M2, &of_a, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F},
                  .of_b = {CUDA_R_8F_E4M3, &of_b, CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F}};
  const ProductDescription d(p);
  EXPECT_EQ(read<const void*>(d.matmul, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER), &of_b);
  EXPECT_EQ(read<const void*>(d.matmul, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER), &of_a);
  EXPECT_EQ(read<std::int32_t>(d.matmul, CUBLASLT_MATMUL_DESC_A_SCALE_MODE), p.of_b.mode);
  EXPECT_EQ(read<std::int32_t>(d.matmul, CUBLASLT_MATMUL_DESC_B_SCALE_MODE), p.of_a.mode);
  EXPECT_EQ(read<std::int8_t>(d.matmul, CUBLASLT_MATMUL_DESC_FAST_ACCUM), 0);
  EXPECT_EQ(sizes(d.left), (Sizes{48, 32, 48}));
  EXPECT_EQ(sizes(d.right), (Sizes{48, 16, 48}));
  EXPECT_EQ(type(d.left), CUDA_R_8F_E4M3);
  EXPECT_EQ(type(d.right), CUDA_R_8F_E5M2);
}

TEST(CudaProducts, NeverSumInBf16NorInAnyOrder) {
  const ProductDescription d({.m = 10, .n = 20, .k = 30});
  std::uint32_t schemes = 0;
  std::size_t written = 0;
  check(
      cublasLtMatmulPreferenceGetAttribute(d.preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                           &schemes, sizeof schemes, &written),
      "reading a preference");
  EXPECT_EQ(schemes & (CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE),
            0u);
}

}  // namespace
}  // namespace atl::cuda
