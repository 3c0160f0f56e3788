// How well kernels of codes, signs, factors, experts and generation use memory, at sizes of real
// models: as traffic_test.cpp.

#include <gtest/gtest.h>

#include "atoll/ops/codes/codes.h"
#include "atoll/ops/codes/factors.h"
#include "atoll/ops/codes/signs.h"
#include "atoll/ops/cuda/testing.h"
#include "atoll/ops/int8/int8.h"
#include "atoll/ops/matmul/matmul.h"
#include "atoll/ops/routing/expert_rows.h"

namespace atl::ops {
namespace {

using test::Gpu;
using test::OwnedTensor;
using test::random_tensor;

// The fake GPU in its first order, with accesses counted.
class CudaCodeTraffic : public testing::Test {
 protected:
  /// Of a kernel that has run: at least this part of what memory moved was asked for, and no lane
  /// waited for a bank.
  void expect_shared_well(const char* kernel, double least) {
    gpu.run.stream->synchronize();
    const auto& accesses = gpu.device().totals().at(kernel).traffic.accesses;
    EXPECT_GE(accesses.coalescing(), least) << kernel;
    EXPECT_EQ(accesses.bank_conflicts, 0u) << kernel;
  }

  Gpu gpu{0, std::size_t{4} << 20, {.counts_accesses = true}};
};

// Scales have a sector each, and halves of 128 bytes of codes lie in five.
TEST_F(CudaCodeTraffic, Codes) {
  constexpr std::int64_t kElements = 4096, kSources = 3;
  for (const int bits : {8, 4}) {
    const std::int64_t bytes = kElements / kCodeBlock * (4 + kCodeBlock * bits / 8);
    OwnedTensor<std::int64_t> pieces({1, kPieceColumns});
    pieces[kPieceCount] = kElements;
    auto x = random_tensor<float>({kElements}, 1), residual = x, to = x;
    OwnedTensor<std::uint8_t> codes({kSources * bytes});
    const Tensor table = gpu(pieces), sent = gpu(codes);
    encode_codes(gpu.run, {.bits = bits,
                           .pieces = table,
                           .x = gpu(x),
                           .residual = gpu(residual),
                           .codes = sent.rows(0, bytes)});
    decode_codes(gpu.run, {.bits = bits,
                           .pieces = table,
                           .codes = sent,
                           .sources = kSources,
                           .source_bytes = bytes,
                           .to = gpu(to)});
    expect_shared_well(bits == 8 ? "encode_int8" : "encode_int4", 0.95);
    expect_shared_well(bits == 8 ? "decode_int8" : "decode_int4", bits == 8 ? 0.86 : 0.8);
  }
}

TEST_F(CudaCodeTraffic, Signs) {
  OwnedTensor<std::int64_t> pieces({1, kSignColumns});
  pieces[kSignCount] = kSignPiece;
  auto v = random_tensor<float>({kSignPiece}, 1), residual = v, grads = v, m = v, x = v;
  for (float& value : v.values) value *= value;
  OwnedTensor<std::uint8_t> codes({4 + kSignPiece / 8});
  const Tensor table = gpu(pieces), moments = gpu(v), signs = gpu(codes);
  const SignUnits units = {.root_scale = 1, .eps = 1e-8F};
  encode_signs(gpu.run, {.adds = EncodeSigns::Adds::kGradients,
                         .units = units,
                         .pieces = table,
                         .codes = signs,
                         .v = {moments, kSignBegin},
                         .residual = {gpu(residual), kSignBegin},
                         .grads = gpu(grads),
                         .beta1 = 0.9F,
                         .rest = 0.1F});
  apply_signs(gpu.run, {.units = units,
                        .pieces = table,
                        .codes = signs,
                        .v = {moments, kSignBegin},
                        .m = {gpu(m), kSignBegin},
                        .x = gpu(x),
                        .step_size = 1e-4F});
  expect_shared_well("encode_signs", 0.94);
  expect_shared_well("apply_signs", 0.8);  // a byte of signs for each eight lanes
}

// The table of matrices and elements of P are the same for all lanes: of such sectors 4 or 8 bytes
// are asked for, by blocks that have little else to read here.
TEST_F(CudaCodeTraffic, Factors) {
  constexpr std::int64_t kRows = 64, kCols = 512, kRank = 4;
  OwnedTensor<std::int64_t> matrices({1, kFactorColumns});
  matrices[kFactorRows] = kRows;
  matrices[kFactorCols] = kCols;
  auto m = random_tensor<float>({kRows * kCols}, 1), residual = m;
  auto p = random_tensor<float>({kRank * kRows}, 2), q = random_tensor<float>({kRank * kCols}, 3);
  OwnedTensor<std::int32_t> flag({1}, 1);
  const Tensor flags = gpu(flag);
  const Factors all = {.matrices = gpu(matrices),
                       .rank = kRank,
                       .most_rows = kRows,
                       .most_cols = kCols,
                       .most_elements = kRows * kCols,
                       .m = gpu(m),
                       .p = gpu(p),
                       .q = gpu(q),
                       .residual = gpu(residual)};
  project_rows(gpu.run, all);
  project_columns(gpu.run, all, flags);
  keep_residual(gpu.run, all, flags);
  restore_product(gpu.run, all, flags);
  expect_shared_well("project_rows", 0.95);
  expect_shared_well("project_columns", 0.75);
  expect_shared_well("keep_residual", 0.84);
  expect_shared_well("restore_product", 0.85);
}

TEST_F(CudaCodeTraffic, RowsOfExperts) {
  constexpr std::int64_t kTokens = 4, kChoices = 2, kWidth = 2048;
  auto x = random_tensor<Bf16>({kTokens, kWidth}, 1);
  auto rows = random_tensor<Bf16>({kTokens * kChoices, kWidth}, 2);
  auto sources = test::random_tokens({kTokens * kChoices}, kTokens * kChoices, 3);
  gather_rows(gpu.run, gpu(x), gpu(sources), gpu(rows));
  expect_shared_well("gather_rows", 0.95);
}

TEST_F(CudaCodeTraffic, EightRowsOfGeneration) {
  constexpr std::int64_t kRows = 8, kWidth = 2048;
  auto x = random_tensor<float>({kRows, kWidth}, 1), y = random_tensor<float>({kRows, kRows}, 2);
  auto w = random_tensor<Bf16>({kRows, kWidth}, 3);
  OwnedTensor<std::uint8_t> values({kRows, kWidth});
  OwnedTensor<float> scales(int8_scales_spec({kRows, kWidth}).shape);
  const Tensor in = gpu(x), out = gpu(y);
  matmul(gpu.run, Transpose::kNT, in, gpu(w), out);
  expect_shared_well("few_rows", 0.95);
  matmul_int8(gpu.run, in, {gpu(values), gpu(scales)}, out);
  expect_shared_well("few_rows", 0.95);
}

// The router's gradients: four stages of both operands lie in shared memory.
TEST_F(CudaCodeTraffic, GradientsOfRouters) {
  constexpr std::int64_t kRows = 64, kExperts = 128, kWidth = 128;
  auto dlogits = random_tensor<float>({kRows, kExperts}, 1);
  auto x = random_tensor<Bf16>({kRows, kWidth}, 2), dx = x;
  auto w = random_tensor<Bf16>({kExperts, kWidth}, 3);
  auto dw = random_tensor<float>({kExperts, kWidth}, 4);
  const Tensor a = gpu(dlogits);
  matmul(gpu.run, Transpose::kNN, a, gpu(w), gpu(dx), {}, true);
  matmul(gpu.run, Transpose::kTN, a, gpu(x), gpu(dw), {}, true);
  expect_shared_well("mixed_matmul_mma", 0.8);
}

}  // namespace
}  // namespace atl::ops
