// Each op whose kernels hang on the step: captured in one step and launched in another, it gives
// the bits of that other step.

#include <gtest/gtest.h>

#include "atoll/base/error.h"
#include "atoll/ops/cross_entropy/cross_entropy.h"
#include "atoll/ops/cuda/testing.h"
#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/ops/embedding/vocabulary_part.h"
#include "atoll/ops/routing/routing.h"
#include "atoll/ops/step_record.h"

namespace atl::ops {
namespace {

using test::Gpu;
using test::OwnedTensor;
using test::random_tensor;

// Numbers of a step.
struct Numbers {
  std::uint64_t seed;
  std::int64_t step, first_sample;
  double loss_scale;

  void set(atl::Run& run) const {
    run.seed = seed;
    run.step = step;
    run.first_sample = first_sample;
    run.loss_scale = loss_scale;
  }
};
constexpr Numbers kCaptured = {0x123456789abcdef0, 3, 5, 0.25};
// One number differs in each.
constexpr Numbers kLater[] = {{0x123456789abcdef1, 3, 5, 0.25},
                              {0x123456789abcdef0, 4, 5, 0.25},
                              {0x123456789abcdef0, 3, 6, 0.25},
                              {0x123456789abcdef0, 3, 5, 0.3}};

// What `use(gpu, operands)` leaves of its operands when it runs with these numbers: at once, or
// captured with kCaptured. Operands' copies to the GPU are no part of a graph, so `use` gives the
// op as a function.
template <typename Operands, typename Use>
Operands result_of(const Operands& start, Use&& use, const Numbers& numbers, bool as_graph,
                   std::uint64_t order) {
  Operands now = start;
  Gpu gpu(order);
  const std::function<void(Run&)> op = use(gpu, now);
  if (!as_graph) {
    numbers.set(gpu.run);
    op(gpu.run);
    gpu.finish();
    return now;
  }
  auto& stream = dynamic_cast<cuda::KernelStream&>(*gpu.run.stream);
  StepRecord record(gpu.run.stream->device());
  Run captured = gpu.run;
  kCaptured.set(captured);
  captured.record = &record;
  stream.begin_capture();
  op(captured);
  const auto graph = stream.end_capture();
  EXPECT_EQ(record.size(), 1u);
  numbers.set(gpu.run);
  record.write(gpu.run);
  stream.launch(*graph);
  gpu.finish();
  return now;
}

// `changes`: which of kLater change what the op gives.
template <typename Operands, typename Use>
void check_op(const Operands& start, Use&& use, std::initializer_list<bool> changes) {
  std::vector<std::uint64_t> orders = {0, 1, 5};
  if (test::has_real_gpu()) orders.push_back(test::kRealGpu);
  for (const std::uint64_t order : orders) {
    const auto at_once = [&](const Numbers& numbers) {
      return result_of(start, use, numbers, /*as_graph=*/false, order);
    };
    const Operands captured = at_once(kCaptured);
    EXPECT_TRUE(result_of(start, use, kCaptured, /*as_graph=*/true, order) == captured);
    for (std::size_t i = 0; i < std::size(kLater); ++i) {
      const Operands later = at_once(kLater[i]);
      EXPECT_EQ(!(later == captured), changes.begin()[i]) << i;
      EXPECT_TRUE(result_of(start, use, kLater[i], /*as_graph=*/true, order) == later)
          << i << ", order " << order;
    }
  }
}

template <typename T>
struct Two {
  OwnedTensor<T> x, y;
  bool operator==(const Two&) const = default;
};

template <typename T>
void check_dropout(const RowPart& part) {
  const Shape shape = {3, 4, 8};
  const Two<T> start{random_tensor<T>(shape, 1), OwnedTensor<T>(shape)};
  check_op(start,
           [&part](Gpu& gpu, Two<T>& s) {
             return [&part, x = gpu(s.x), y = gpu(s.y)](atl::Run& run) {
               dropout(run, 0.3, 2, x, y, part);
             };
           },
           {true, true, true, false});
}

TEST(CudaStepRecord, DropoutDrawsForTheStepAtHand) {
  check_dropout<float>({});
  check_dropout<Bf16>({});
  check_dropout<float>({.count = 2, .index = 1});
  check_dropout<Bf16>({.tokens = {.num_ranks = 2, .rank = 1}});
}

template <typename T>
struct Head {
  OwnedTensor<T> x, weight;
  OwnedTensor<std::int32_t> targets;
  OwnedTensor<float> loss;
  OwnedTensor<T> dx;
  OwnedTensor<float> dweight;
  bool operator==(const Head&) const = default;
};

template <typename T>
void check_cross_entropy() {
  const std::int64_t rows = 5, width = 8, vocab = 19;
  Head<T> start{random_tensor<T>({rows, width}, 1), random_tensor<T>({vocab, width}, 2),
                OwnedTensor<std::int32_t>({rows}),  OwnedTensor<float>({rows}),
                OwnedTensor<T>({rows, width}),      OwnedTensor<float>({vocab, width})};
  for (std::int64_t row = 0; row < rows; ++row) start.targets[row] = static_cast<int>(row * 3);
  check_op(start,
           [](Gpu& gpu, Head<T>& s) {
             return [x = gpu(s.x), weight = gpu(s.weight), targets = gpu(s.targets),
                     loss = gpu(s.loss), dx = gpu(s.dx), dweight = gpu(s.dweight)](atl::Run& run) {
               linear_cross_entropy(run, 0.7, x, weight, targets, loss, dx, dweight);
             };
           },
           {false, false, false, true});
}

TEST(CudaStepRecord, CrossEntropyScalesItsGradientForTheStepAtHand) {
  check_cross_entropy<float>();
  check_cross_entropy<Bf16>();
}

struct PartOfHead {
  OwnedTensor<float> exps;
  OwnedTensor<std::int32_t> targets;
  OwnedTensor<double> statistics;
  OwnedTensor<float> loss;
  bool operator==(const PartOfHead&) const = default;
};

TEST(CudaStepRecord, CrossEntropyOfAPartDoesSoToo) {
  const std::int64_t rows = 3, vocab = 9;
  PartOfHead start{random_tensor<float>({rows, vocab}, 1, 1), OwnedTensor<std::int32_t>({rows}),
                   OwnedTensor<double>({1, rows, 3}), OwnedTensor<float>({rows})};
  for (std::int64_t i = 0; i < rows * 3; ++i) start.statistics[i] = 1.5;
  check_op(start,
           [](Gpu& gpu, PartOfHead& s) {
             return [exps = gpu(s.exps), targets = gpu(s.targets), statistics = gpu(s.statistics),
                     loss = gpu(s.loss)](atl::Run& run) {
               cross_entropy_part(run, {.first = 0, .size = 9, .total = 9}, 0, 0.7, statistics,
                                  targets, exps, loss, true);
             };
           },
           {false, false, false, true});
}

struct Router {
  OwnedTensor<float> logits;
  OwnedTensor<std::int32_t> experts;
  OwnedTensor<float> weights, dweights, dlogits;
  bool operator==(const Router&) const = default;
};

TEST(CudaStepRecord, RouterLossesWeighWhatTheyDoInTheStepAtHand) {
  const std::int64_t rows = 6, num_experts = 4, k = 2;
  Router start{random_tensor<float>({rows, num_experts}, 1), OwnedTensor<std::int32_t>({rows, k}),
               random_tensor<float>({rows, k}, 2), random_tensor<float>({rows, k}, 3),
               OwnedTensor<float>({rows, num_experts})};
  for (std::int64_t i = 0; i < rows * k; ++i) start.experts[i] = static_cast<int>(i % num_experts);
  for (const RouterLosses& losses : {RouterLosses{.balance = 0.3}, RouterLosses{.z = 0.2}}) {
    check_op(start,
             [&losses](Gpu& gpu, Router& s) {
               return [&losses, logits = gpu(s.logits), experts = gpu(s.experts),
                       weights = gpu(s.weights), dweights = gpu(s.dweights),
                       dlogits = gpu(s.dlogits)](atl::Run& run) {
                 route_tokens_backward(run, true, losses, logits, experts, weights, dweights,
                                       dlogits);
               };
             },
             {false, false, false, true});
  }
}

TEST(StepRecord, OfMoreThanFitsIsAnError) {
  Gpu gpu;
  StepRecord record(gpu.device());
  const auto add = [&] { record.add([](const atl::Run& run) { return run.step; }); };
  for (std::size_t i = 0; i < StepRecord::kCapacity / 64; ++i) add();
  EXPECT_THROW(add(), Error);
}

}  // namespace
}  // namespace atl::ops
