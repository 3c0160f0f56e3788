// How well the kernels that memory bounds use it, at the widths of real models: what the lanes of a
// warp ask for is what memory moves, no lane waits for a bank of shared memory, and nothing is
// asked for beyond the operands of the op.

#include <gtest/gtest.h>

#include "atoll/ops/activation/activation.h"
#include "atoll/ops/cross_entropy/cross_entropy.h"
#include "atoll/ops/cuda/testing.h"
#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/ops/embedding/embedding.h"
#include "atoll/ops/matmul/matmul.h"
#include "atoll/ops/norm/norm.h"
#include "atoll/ops/profile.h"
#include "atoll/ops/rope/rope.h"
#include "atoll/ops/update/adamw.h"

namespace atl::ops {
namespace {

using test::Gpu;
using test::OwnedTensor;
using test::random_tensor;

// The fake GPU in its first order, with accesses counted.
class CudaTraffic : public testing::Test {
 protected:
  CudaTraffic() { gpu.run.profile = &profile; }

  /// Of each kernel that has run: at least this part of what memory moved was asked for, and no
  /// lane waited for a bank.
  void expect_shared_well(double least = 0.95) {
    gpu.run.stream->synchronize();
    EXPECT_FALSE(gpu.device().totals().empty());
    for (const auto& [name, total] : gpu.device().totals()) {
      const fake_cuda::AccessTotals& accesses = total.traffic.accesses;
      EXPECT_GE(accesses.coalescing(), least) << name;
      EXPECT_EQ(accesses.bank_conflicts, 0u) << name;
    }
  }
  /// The kernels ask for the operands of their ops once: for what OpCost says, `beside` bytes that
  /// it leaves out, and at most 3% more.
  void expect_bytes(double beside = 0) {
    double cost = beside, asked = 0;
    for (const OpProfile::Row& row : profile.rows()) {
      cost += row.cost.bytes * static_cast<double>(row.calls);
    }
    for (const auto& [name, total] : gpu.device().totals()) {
      asked += static_cast<double>(total.traffic.accesses.asked_bytes);
    }
    EXPECT_GE(asked, cost);
    EXPECT_LE(asked, 1.03 * cost);
  }

  Gpu gpu{0, std::size_t{4} << 20, {.counts_accesses = true}};
  OpProfile profile;
};

// Widths of GPT-2 of 124M and of a Llama of 1B, and the rows that one block takes.
class CudaTrafficOfRows : public CudaTraffic, public testing::WithParamInterface<std::int64_t> {};
constexpr std::int64_t kRows = 32;
INSTANTIATE_TEST_SUITE_P(Widths, CudaTrafficOfRows, testing::Values(768, 2048),
                         testing::PrintToStringParamName());

template <typename T>
void run_norms(Gpu& gpu, std::int64_t width, bool is_layer) {
  auto x = random_tensor<T>({kRows, width}, 1), past = x, dy = x, y = x, dx = x;
  auto weight = random_tensor<T>({width}, 2), bias = weight;
  OwnedTensor<float> mean({kRows}), rstd({kRows}), dweight({width}), dbias({width});
  const Tensor in = gpu(x), w = gpu(weight), grad = gpu(dy), m = gpu(mean), r = gpu(rstd);
  auto run = gpu.run;
  const Tensor sums = run.take_scratch(norm_sums_spec(in.spec(), is_layer ? 2 : 1));
  if (is_layer) {
    layer_norm_forward(run, 1e-5, in, w, gpu(bias), gpu(y), m, r);
    layer_norm_backward(run, in, w, m, r, grad, gpu(past), gpu(dx), sums);
    add_norm_sums(run, kRows, sums, gpu(dweight), gpu(dbias));
  } else {
    rms_norm_forward(run, 1e-5, in, w, gpu(y), r);
    rms_norm_backward(run, 1e-5, in, w, r, grad, gpu(past), gpu(dx), sums);
    add_norm_sums(run, kRows, sums, gpu(dweight));
  }
}

TEST_P(CudaTrafficOfRows, LayerNormInBf16) {
  run_norms<Bf16>(gpu, GetParam(), true);
  expect_shared_well();
}
TEST_P(CudaTrafficOfRows, LayerNormInF32) {
  run_norms<float>(gpu, GetParam(), true);
  expect_shared_well();
}
TEST_P(CudaTrafficOfRows, RmsNormInBf16) {
  run_norms<Bf16>(gpu, GetParam(), false);
  expect_shared_well();
}
TEST_P(CudaTrafficOfRows, RmsNormInF32) {
  run_norms<float>(gpu, GetParam(), false);
  expect_shared_well();
}

template <typename T>
void run_swiglu(Gpu& gpu, std::int64_t width) {
  auto gate_up = random_tensor<T>({kRows, 2 * width}, 1), dgate_up = gate_up;
  auto h = random_tensor<T>({kRows, width}, 2), dh = h;
  const Tensor in = gpu(gate_up);
  swiglu_forward(gpu.run, in, gpu(h));
  swiglu_backward(gpu.run, in, gpu(dh), gpu(dgate_up));
}

TEST_P(CudaTrafficOfRows, SwigluInBf16) {
  run_swiglu<Bf16>(gpu, GetParam());
  expect_shared_well();
  expect_bytes();
}
TEST_P(CudaTrafficOfRows, SwigluInF32) {
  run_swiglu<float>(gpu, GetParam());
  expect_shared_well();
  expect_bytes();
}

TEST_P(CudaTrafficOfRows, Gelu) {
  auto x = random_tensor<Bf16>({kRows, GetParam()}, 1), dy = x, dx = x, y = x;
  auto run = gpu.run;
  const Tensor in = gpu(x);
  const Tensor sums = run.take_scratch(column_sums_spec(in.spec()));
  gelu_forward(run, Gelu::kTanh, in, gpu(y));
  gelu_backward(run, Gelu::kTanh, in, gpu(dy), gpu(dx), {}, sums);
  expect_shared_well();
  expect_bytes(static_cast<double>(sums.bytes()));
}

TEST_P(CudaTrafficOfRows, ColumnSums) {
  auto dy = random_tensor<Bf16>({kRows, GetParam()}, 1);
  auto wide = random_tensor<float>({kRows, GetParam()}, 2);
  auto dbias = random_tensor<float>({GetParam()}, 3);
  const Tensor sum = gpu(dbias);
  column_sum(gpu.run, gpu(dy), sum);
  column_sum(gpu.run, gpu(wide), sum);
  expect_shared_well();
}

TEST_P(CudaTrafficOfRows, RopeOfQueriesAndKeys) {
  constexpr std::int64_t kDim = 64;
  const HeadLayout heads = {GetParam() / kDim, GetParam() / kDim, kDim};
  auto qkv = random_tensor<Bf16>({1, 4, heads.qkv_width()}, 1);
  auto table = random_tensor<float>({4, kDim}, 2);
  rope(gpu.run, heads, gpu(table), {}, false, gpu(qkv));
  expect_shared_well();
}

TEST_P(CudaTrafficOfRows, Embedding) {
  auto tokens = test::random_tokens({1, kRows}, 64, 1);
  auto table = random_tensor<Bf16>({64, GetParam()}, 1);
  auto y = random_tensor<Bf16>({1, kRows, GetParam()}, 2);
  embedding_forward(gpu.run, gpu(tokens), gpu(table), gpu(y));
  expect_shared_well();
}

template <typename T, bool kMasters>
void run_adamw(Gpu& gpu) {
  auto param = random_tensor<T>({4096}, 1);
  auto grad = random_tensor<float>({4096}, 2), m = grad, v = grad, master = grad;
  for (float& value : v.values) value = value * value;
  UpdateTarget target(gpu(param));
  if (kMasters) target.master = gpu(master);
  adamw(gpu.run, {.lr = 1e-3}, target, gpu(grad), gpu(m), gpu(v));
}

TEST_F(CudaTraffic, AdamWInF32) {
  run_adamw<float, false>(gpu);
  expect_shared_well();
  expect_bytes();
}
TEST_F(CudaTraffic, AdamWInBf16WithMasters) {
  run_adamw<Bf16, true>(gpu);
  expect_shared_well();
}
TEST_F(CudaTraffic, AdamWInBf16RoundedStochastically) {
  run_adamw<Bf16, false>(gpu);
  expect_shared_well();
  expect_bytes();
}

// Beside the products, which a library makes: logits are read once and written once.
template <typename T>
void run_cross_entropy(Gpu& gpu, std::int64_t tokens, std::int64_t vocab) {
  auto x = random_tensor<T>({tokens, 8}, 1), dx = x;
  auto weight = random_tensor<T>({vocab, 8}, 2);
  auto targets = test::random_tokens({tokens}, vocab, 3);
  OwnedTensor<float> loss({tokens}), dweight({vocab, 8});
  linear_cross_entropy(gpu.run, 1, gpu(x), gpu(weight), gpu(targets), gpu(loss), gpu(dx),
                       gpu(dweight));
  gpu.run.stream->synchronize();
  const auto accesses = gpu.device().totals().at("cross_entropy").traffic.accesses;
  const double logits = 2.0 * static_cast<double>(tokens * vocab) * sizeof(T);
  EXPECT_GE(static_cast<double>(accesses.asked_bytes), logits);
  EXPECT_LE(static_cast<double>(accesses.asked_bytes), 1.03 * logits);
}

TEST_F(CudaTraffic, CrossEntropyInBf16) {
  run_cross_entropy<Bf16>(gpu, 2, 50304);
  expect_shared_well();
}
TEST_F(CudaTraffic, CrossEntropyInF32) {
  run_cross_entropy<float>(gpu, 2, 8192);
  expect_shared_well();
}
// Its rows begin anywhere in a sector, and lanes take 2 bytes each.
TEST_F(CudaTraffic, CrossEntropyOfAnOddVocabulary) {
  run_cross_entropy<Bf16>(gpu, 2, 50257);
  expect_shared_well(0.79);
}

}  // namespace
}  // namespace atl::ops
