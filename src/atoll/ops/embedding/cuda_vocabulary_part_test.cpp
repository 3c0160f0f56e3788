// Parts of a vocabulary on the fake GPU: the bits of the host where numbers are moved or added in
// one order, and a softmax within what f32 explains.

#include "atoll/ops/embedding/vocabulary_part.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/ops/cuda/testing.h"
#include "atoll/ops/embedding/ref_vocabulary_part.h"
#include "atoll/ops/matmul/matmul.h"
#include "atoll/tensor/batch.h"

namespace atl::ops {
namespace {

using test::Gpu;
using test::OwnedTensor;
using test::random_tensor;
using test::random_tokens;

const auto kDiffers = [](std::uint64_t order) { ADD_FAILURE() << "other bits in order " << order; };

constexpr VocabularyPart kPart = {5, 9, 20};

struct Numbers {
  OwnedTensor<std::int32_t> from, to;
  bool operator==(const Numbers&) const = default;
};

TEST(CudaVocabularyPart, LocalTokensAreThoseOfTheHost) {
  for (const std::int64_t rows : {1, 33, 300}) {
    const Numbers start{random_tokens({rows}, 20, 1), random_tokens({rows}, 20, 2)};
    const auto got = test::in_every_order(
        start, [](Gpu& gpu, Numbers& s) { local_tokens(gpu.run, kPart, gpu(s.from), gpu(s.to)); },
        kDiffers);
    Numbers expected = start;
    test::TestRun host;
    local_tokens(host, kPart, expected.from, expected.to);
    EXPECT_EQ(got, expected) << rows;
  }
}

TEST(CudaVocabularyPart, LocalPositionsAreThoseOfTheHost) {
  for (const bool has_positions : {false, true}) {
    const Numbers start{random_tokens({4, 6}, 20, 1), OwnedTensor<std::int32_t>({9}, -7)};
    const auto use = [&](atl::Run& run, Tensor positions, Tensor to) {
      local_positions(run, has_positions ? positions : Tensor(), 6, 4, to);
    };
    const auto got = test::in_every_order(
        start, [&](Gpu& gpu, Numbers& s) { use(gpu.run, gpu(s.from), gpu(s.to)); }, kDiffers);
    Numbers expected = start;
    test::TestRun host;
    use(host, expected.from, expected.to);
    EXPECT_EQ(got, expected) << has_positions;
  }
}

template <typename T>
struct Rows {
  OwnedTensor<std::int32_t> tokens;
  OwnedTensor<T> rows;
  OwnedTensor<float> table;  // (part.size, C)
  bool operator==(const Rows&) const = default;
};

template <typename T>
void check_rows() {
  for (const auto& [rows, width] : {std::pair{1, 1}, {7, 5}, {40, 24}, {300, 8}}) {
    const Rows<T> start{random_tokens({rows}, 20, 1), random_tensor<T>({rows, width}, 2, 1.0),
                        random_tensor<float>({kPart.size, width}, 3, 1.0)};
    const auto got = test::in_every_order(
        start,
        [](Gpu& gpu, Rows<T>& s) {
          const Tensor tokens = gpu(s.tokens), here = gpu(s.rows);
          embedding_part_backward(gpu.run, kPart, tokens, here, gpu(s.table));
          clear_foreign_rows(gpu.run, kPart, tokens, here);
        },
        kDiffers);
    Rows<T> expected = start;
    test::TestRun host;
    embedding_part_backward(host, kPart, expected.tokens, expected.rows, expected.table);
    clear_foreign_rows(host, kPart, expected.tokens, expected.rows);
    EXPECT_EQ(got, expected) << rows;
    EXPECT_FALSE(got == start);
  }
}

TEST(CudaVocabularyPart, ForeignRowsAreClearedAndAddNothing) {
  check_rows<float>();
  check_rows<Bf16>();
}

template <typename T>
struct Head {
  OwnedTensor<T> logits;
  OwnedTensor<std::int32_t> targets;
  OwnedTensor<double> statistics;  // (3, rows, 3): of this part and of two others
  OwnedTensor<T> loss;
  bool operator==(const Head&) const = default;
};

Head<float> make_head(const VocabularyPart& part, std::int64_t rows) {
  Head<float> head{random_tensor<float>({rows, part.size}, 1, 8.0),
                   random_tokens({rows}, static_cast<std::int32_t>(part.total), 2),
                   OwnedTensor<double>({3, rows, kNumSoftmaxStatistics}),
                   OwnedTensor<float>({rows}, 1e30F)};
  head.targets[rows / 2] = kIgnoreTarget;
  // What others have sent: the largest logit, a sum, and no target.
  for (std::int64_t i = 0; i < head.statistics.size(); ++i) {
    const std::int64_t which = i % kNumSoftmaxStatistics;
    head.statistics[i] = which == kTargetLogit ? 0.0 : 1.0 + 0.25 * static_cast<double>(i % 7);
  }
  return head;
}

constexpr int kIndex = 1;
constexpr double kScale = 0.125;

Tensor own_statistics(const Tensor& all) {
  return all.rows(kIndex, kIndex + 1).reshaped({all.dim(1) * all.dim(2)});
}

TEST(CudaVocabularyPart, SoftmaxInPartsMatchesDouble) {
  for (const auto& [size, rows] : {std::pair{1, 1}, {33, 5}, {1032, 9}, {5000, 3}}) {
    const VocabularyPart part = {size / 2, size, 3 * std::int64_t{size}};
    for (const bool gradient : {true, false}) {
      const Head<float> start = make_head(part, rows);
      const auto got = test::in_every_order(
          start,
          [&](Gpu& gpu, Head<float>& s) {
            const Tensor logits = gpu(s.logits), targets = gpu(s.targets),
                         statistics = gpu(s.statistics);
            softmax_part(gpu.run, part, logits, targets, own_statistics(statistics));
            cross_entropy_part(gpu.run, part, kIndex, kScale, statistics, targets, logits,
                               gpu(s.loss), gradient);
          },
          kDiffers);
      Head<double> exact{start.logits.as<double>(), start.targets, start.statistics,
                         OwnedTensor<double>({rows})};
      ThreadPool threads(1);
      ref::softmax_part<double>(threads, part, exact.logits, exact.targets,
                                own_statistics(exact.statistics));
      ref::cross_entropy_part<double>(threads, part, kIndex, kScale, exact.statistics,
                                      exact.targets, exact.logits, exact.loss, gradient);
      // Logits up to 8: an exponential is wrong by their rounding, 8 eps, and its own two units.
      EXPECT_LE(test::max_abs_difference(got.loss, exact.loss), 16 * 20 * 0x1p-24) << size;
      EXPECT_EQ(got.loss[rows / 2], 0.0F);
      for (std::int64_t i = 0; i < got.statistics.size(); ++i) {
        EXPECT_NEAR(got.statistics[i], exact.statistics[i],
                    std::abs(exact.statistics[i]) * 20 * 0x1p-24)
            << size;
      }
      if (gradient) {
        EXPECT_LE(test::max_abs_difference(got.logits, exact.logits), kScale * 20 * 0x1p-24);
      }
    }
  }
}

// Gradients of a vocabulary's logits, f32 beside bf16, are rounded to bf16 for tensor cores.
TEST(CudaVocabularyPart, GradientsOfLogitsMeetBf16AsBf16) {
  constexpr std::int64_t kWide = 1030;
  OwnedTensor<float> logits = random_tensor<float>({3, kWide}, 1), dx({3, 5});
  OwnedTensor<Bf16> weight = random_tensor<Bf16>({kWide, 5}, 2), x = random_tensor<Bf16>({3, 5}, 3);
  OwnedTensor<float> dweight({kWide, 5});
  OwnedTensor<Bf16> rounded = logits.as<Bf16>();
  const auto expected_dx = [&](std::int64_t row, std::int64_t c) {
    double sum = 0;
    for (std::int64_t v = 0; v < kWide; ++v) {
      sum += static_cast<double>(to_f32(rounded[row * kWide + v])) * to_f32(weight[v * 5 + c]);
    }
    return sum;
  };
  Gpu gpu;
  const Tensor left = gpu(logits);
  const std::size_t bytes = matmul_scratch_bytes(Transpose::kNN, left.spec(), weight.view().spec());
  EXPECT_EQ(bytes, align_up(rounded.view().bytes()));
  gpu.run.scratch = gpu.run.scratch.first(bytes);
  matmul(gpu.run, Transpose::kNN, left, gpu(weight), gpu(dx));
  matmul(gpu.run, Transpose::kTN, left, gpu(x), gpu(dweight));
  gpu.finish();
  EXPECT_THAT(gpu.device().library_calls(),
              testing::ElementsAre("matmul nn 3 x 5 x 1030, bf16 bf16 f32",
                                   "matmul tn 1030 x 5 x 3, bf16 bf16 f32"));
  for (std::int64_t i = 0; i < dx.size(); ++i) {
    EXPECT_NEAR(dx[i], expected_dx(i / 5, i % 5), 1e-4) << i;
  }
}

}  // namespace
}  // namespace atl::ops
