#include "atoll/ops/cross_entropy/cuda.h"
#include "atoll/ops/cross_entropy/cross_entropy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/ops/cross_entropy/ref.h"
#include "atoll/ops/cuda/testing.h"
#include "atoll/ops/matmul/matmul.h"

namespace atl::ops {
namespace {

using test::Gpu;
using test::OwnedTensor;
using test::random_tensor;

const auto kDiffers = [](std::uint64_t order) { ADD_FAILURE() << "other bits in order " << order; };

template <typename T>
struct Head {
  OwnedTensor<T> x, weight;
  OwnedTensor<std::int32_t> targets;
  OwnedTensor<T> dx;
  OwnedTensor<float> loss, dweight;
  bool operator==(const Head&) const = default;
};

template <typename T>
Head<T> make_head(std::int64_t rows, std::int64_t width, std::int64_t vocab) {
  Head<T> head{random_tensor<T>({rows, width}, 1),
               random_tensor<T>({vocab, width}, 2),
               test::random_tokens({rows}, vocab, 3),
               OwnedTensor<T>({rows, width}),
               OwnedTensor<float>({rows}),
               random_tensor<float>({vocab, width}, 4)};
  head.targets[rows / 2] = kIgnoreTarget;
  return head;
}

// Loss and gradients in double.
struct Exact {
  template <typename T>
  Exact(const Head<T>& head, double scale)
      : x(head.x.template as<double>()),
        weight(head.weight.template as<double>()),
        dx(x.shape),
        loss(head.loss.shape),
        dweight(head.dweight.template as<double>()),
        logits({x.shape.dim(0), weight.shape.dim(0)}) {
    ThreadPool threads(1);
    CrossEntropyArgs args;
    args.rows = x.shape.dim(0);
    args.width = x.shape.dim(1);
    args.vocab = weight.shape.dim(0);
    args.grad_scale = scale;
    args.x = x;
    args.weight = weight;
    args.targets = head.targets.values.data();
    args.loss = loss;
    args.dx = dx;
    args.dweight = dweight;
    ref::linear_cross_entropy<double>(threads, args, args.rows, logits.values.data());
  }
  OwnedTensor<double> x, weight, dx, loss, dweight, logits;
};

template <typename T>
void check_head() {
  constexpr double kScale = 0.125;
  // Rounding of logits that are stored in bf16, up to 8 in size, moves a loss by as much.
  const double stored = std::is_same_v<T, Bf16> ? 8 * 0x1p-8 : 1e-5;
  for (const auto& [rows, width, vocab] :
       {std::tuple{1, 1, 1}, {5, 16, 33}, {9, 32, 1032}, {3, 8, 5000}}) {
    const Head<T> start = make_head<T>(rows, width, vocab);
    const auto got = test::in_every_order(
        start,
        [](Gpu& gpu, Head<T>& h) {
          // Two chunks where there are rows for them.
          const std::size_t row = static_cast<std::size_t>(h.weight.shape.dim(0)) * sizeof(T);
          const std::size_t some = static_cast<std::size_t>(h.loss.size() + 1) / 2 * row + 64;
          gpu.run.scratch = gpu.run.scratch.subspan(0, (some + 63) / 64 * 64);
          linear_cross_entropy(gpu.run, kScale, gpu(h.x), gpu(h.weight), gpu(h.targets),
                               gpu(h.loss), gpu(h.dx), gpu(h.dweight));
        },
        kDiffers, /*has_products=*/true);
    const Exact exact(start, kScale);
    EXPECT_LE(test::max_abs_difference(got.loss, exact.loss), stored) << vocab;
    EXPECT_EQ(got.loss[rows / 2], 0.0F);
    EXPECT_LE(test::max_abs_difference(got.dx, exact.dx), stored * kScale) << vocab;
    EXPECT_LE(test::max_abs_difference(got.dweight, exact.dweight), stored * kScale) << vocab;
  }
}

TEST(CudaCrossEntropy, MatchesRefInDouble) {
  check_head<float>();
}
TEST(CudaCrossEntropy, MatchesRefInBf16) {
  check_head<Bf16>();
}

// What is computed with powers of two is the difference of logits, however large these are.
TEST(CudaCrossEntropy, OfLargeLogitsInBf16IsAsExactAsOfSmallOnes) {
  for (const float shift : {0.0F, 1000.0F, -100000.0F}) {
    Gpu gpu;
    Head<Bf16> head = make_head<Bf16>(1, 1, 33);
    head.x.values[0] = test::number<Bf16>(1);
    head.targets[0] = 2;
    double sum = 0, target = 0;
    const double largest = test::number<double>(test::number<Bf16>(shift + 8));
    for (std::int64_t v = 0; v < 33; ++v) {
      head.weight[v] = test::number<Bf16>(shift + static_cast<float>(v % 3) * 4);
      const double logit = test::number<double>(head.weight[v]) - largest;
      sum += std::exp(logit);
      if (v == 2) target = logit;
    }
    linear_cross_entropy(gpu.run, 1, gpu(head.x), gpu(head.weight), gpu(head.targets),
                         gpu(head.loss), gpu(head.dx), gpu(head.dweight));
    gpu.finish();
    EXPECT_NEAR(head.loss[0], std::log(sum) - target, 1e-5) << shift;
  }
}

template <typename T>
void check_bad_logits() {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    for (const std::int64_t place : {0, 7, 32}) {  // 7 is the target's
      Gpu gpu;
      Head<T> head = make_head<T>(1, 1, 33);
      head.x.values[0] = test::number<T>(1);
      head.targets[0] = 7;
      head.weight[place] = test::number<T>(bad);
      linear_cross_entropy(gpu.run, 1, gpu(head.x), gpu(head.weight), gpu(head.targets),
                           gpu(head.loss), gpu(head.dx), gpu(head.dweight));
      gpu.finish();
      EXPECT_TRUE(std::isnan(head.loss[0])) << bad << " at " << place;
    }
  }
}

TEST(CudaCrossEntropy, NaNAndInfinityAreNotHidden) {
  check_bad_logits<float>();
  check_bad_logits<Bf16>();
}

TEST(CudaCrossEntropy, TakesLargeChunksBySizesAlone) {
  EXPECT_EQ(cuda::cross_entropy_chunk_rows(Dtype::kBf16, 32768, 50304), 32768);
  EXPECT_EQ(cuda::cross_entropy_chunk_rows(Dtype::kBf16, 65536, 50304), 32768);
  EXPECT_EQ(cuda::cross_entropy_chunk_rows(Dtype::kBf16, 32768, 128256), 16384);
  EXPECT_EQ(cuda::cross_entropy_chunk_rows(Dtype::kF32, 8192, 128256), 8192);
  EXPECT_EQ(cuda::cross_entropy_chunk_rows(Dtype::kBf16, 10000, 1 << 21), 3334);
  EXPECT_EQ(cuda::cross_entropy_chunk_rows(Dtype::kBf16, 1, 1), 1);
  const Spec x = {Dtype::kBf16, {32768, 768}}, weight = {Dtype::kBf16, {50304, 768}};
  EXPECT_EQ(linear_cross_entropy_scratch_bytes(x, weight, DeviceKind::kCuda),
            std::size_t{32768} * 50304 * 2);
}

TEST(CudaCrossEntropy, ReadsLogitsOnceAndWritesThemOnce) {
  Gpu gpu;
  Head<Bf16> head = make_head<Bf16>(8, 16, 1024);
  std::fill(head.targets.values.begin(), head.targets.values.end(), 5);
  linear_cross_entropy(gpu.run, 1, gpu(head.x), gpu(head.weight), gpu(head.targets), gpu(head.loss),
                       gpu(head.dx), gpu(head.dweight));
  gpu.finish();
  const auto traffic = gpu.device().totals().at("cross_entropy").traffic;
  const std::uint64_t logits = 8 * 1024 * 2;
  // Each thread reads its row's target and the target's logit besides.
  EXPECT_EQ(traffic.read, logits + 8 * 512 * (4 + 2));
  EXPECT_EQ(traffic.written, logits + 8 * 4);
}

// Of a row that is more than shared memory holds, the rest is read again.
TEST(CudaCrossEntropy, KeepsOfALongRowWhatFits) {
  Gpu gpu;
  Head<float> head = make_head<float>(2, 8, 26000);
  const Exact exact(head, 1);
  linear_cross_entropy(gpu.run, 1, gpu(head.x), gpu(head.weight), gpu(head.targets), gpu(head.loss),
                       gpu(head.dx), gpu(head.dweight));
  gpu.finish();
  EXPECT_LE(test::max_abs_difference(head.loss, exact.loss), 1e-4);
  EXPECT_LE(test::max_abs_difference(head.dx, exact.dx), 1e-4);
  EXPECT_LE(test::max_abs_difference(head.dweight, exact.dweight), 1e-4);
  // Shared memory holds 25312 logits; only one of the two rows has a target. Each thread reads its
  // row's target, and there the target's logit.
  EXPECT_EQ(gpu.device().totals().at("cross_entropy").traffic.read,
            (std::uint64_t{26000} + (26000 - 25312)) * 4 + 512 * (4 + 4 + 4));
}

TEST(CudaCrossEntropy, EvaluationLeavesNoGradients) {
  Gpu gpu;
  Head<float> head = make_head<float>(5, 16, 33);
  linear_cross_entropy(gpu.run, 1, gpu(head.x), gpu(head.weight), gpu(head.targets), gpu(head.loss),
                       {}, {});
  gpu.finish();
  EXPECT_LE(test::max_abs_difference(head.loss, Exact(make_head<float>(5, 16, 33), 1).loss), 1e-5);
  EXPECT_EQ(head.dweight, make_head<float>(5, 16, 33).dweight);
}

// Skipped without a GPU.
class RealGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_real_gpu()) GTEST_SKIP() << "no GPU, or built without nvcc";
  }
};

TEST_F(RealGpu, CrossEntropyMatchesRef) {
  Gpu gpu(test::kRealGpu);
  Head<float> head = make_head<float>(9, 32, 1032);
  const Exact exact(head, 1);
  linear_cross_entropy(gpu.run, 1, gpu(head.x), gpu(head.weight), gpu(head.targets), gpu(head.loss),
                       gpu(head.dx), gpu(head.dweight));
  gpu.finish();
  EXPECT_LE(test::max_abs_difference(head.loss, exact.loss), 1e-4);
  EXPECT_LE(test::max_abs_difference(head.dx, exact.dx), 1e-4);
}

// Split sums have dropped the tail of k in some versions of the library: ones times ones is k.
TEST_F(RealGpu, ProductsOfOnesAreTheirInnerSizeAHundredTimes) {
  for (const auto& [m, n, k] : {std::tuple{768, 2304, 8192}, {2048, 768, 768}, {768, 3072, 2040}}) {
    for (const Transpose transpose : {Transpose::kNN, Transpose::kNT, Transpose::kTN}) {
      Gpu gpu(test::kRealGpu);
      const bool tn = transpose == Transpose::kTN, nt = transpose == Transpose::kNT;
      OwnedTensor<Bf16> a(tn ? Shape{k, m} : Shape{m, k}, to_bf16(1));
      OwnedTensor<Bf16> b(nt ? Shape{n, k} : Shape{k, n}, to_bf16(1));
      OwnedTensor<float> c({m, n});
      const Tensor left = gpu(a), right = gpu(b), product = gpu(c);
      for (int repeat = 0; repeat < 100; ++repeat) {
        matmul(gpu.run, transpose, left, right, product);
      }
      gpu.finish();
      EXPECT_EQ(c, OwnedTensor<float>({m, n}, static_cast<float>(k))) << m << " " << n << " " << k;
    }
  }
}

TEST(CudaMatmul, RecordsWhatItAsksOfTheLibrary) {
  Gpu gpu;
  OwnedTensor<Bf16> a = random_tensor<Bf16>({8, 16}, 1), b = random_tensor<Bf16>({24, 16}, 2);
  OwnedTensor<float> c({8, 24});
  OwnedTensor<float> bias = random_tensor<float>({24}, 3);
  matmul(gpu.run, Transpose::kNT, gpu(a), gpu(b), gpu(c), gpu(bias));
  gpu.finish();
  EXPECT_THAT(gpu.device().library_calls(),
              testing::ElementsAre("matmul nt 8 x 24 x 16, bf16 bf16 f32, bias"));
  double sum = bias[1];
  for (std::int64_t k = 0; k < 16; ++k) sum += to_f32(a[k]) * to_f32(b[16 + k]);
  EXPECT_NEAR(c[1], sum, 1e-5);
}

// A test on the fake GPU that passes where the library would not serve shows nothing.
TEST(CudaMatmul, RefusesWhatTheLibraryDoesNotMix) {
  Gpu gpu;
  OwnedTensor<float> wide({8, 16}), wide_result({8, 24});
  OwnedTensor<Bf16> narrow({24, 16}), bias({24}), narrow_result({8, 24});
  OwnedTensor<float> other({24, 16});
  OwnedTensor<Bf16> x({8, 16});
  OwnedTensor<Bf16> upright({16, 24});
  const Tensor a = gpu(wide), b = gpu(narrow);
  EXPECT_THROW(matmul(gpu.run, Transpose::kNN, a, gpu(upright), gpu(wide_result)), Error);
  EXPECT_THROW(matmul(gpu.run, Transpose::kNT, a, gpu(other), gpu(narrow_result)), Error);
  EXPECT_THROW(matmul(gpu.run, Transpose::kNT, gpu(x), b, gpu(wide_result), gpu(bias)), Error);
}

}  // namespace
}  // namespace atl::ops
