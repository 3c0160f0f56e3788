// What training takes of a GPU's memory, planned without one: bf16 with f32 masters, a micro-batch
// of whole sequences, recompute where it must be.

#include <gtest/gtest.h>

#include "atoll/nn/models/family.h"
#include "atoll/ops/matmul/bf16_arithmetic.h"
#include "atoll/optim/optimizer.h"
#include "atoll/parallel/gpu_models_testing.h"
#include "atoll/parallel/runner/runner.h"
#include "atoll/parallel/store/store_single.h"

namespace atl::parallel {
namespace {

std::size_t planned_bytes(const nn::ModelConfig& config, std::int64_t batch, std::int64_t length,
                          nn::RecomputeMode recompute) {
  const auto model = nn::build_model(
      config, {.dtype = Dtype::kBf16, .recompute = recompute, .device = DeviceKind::kCuda});
  SingleStore store(*model, true);
  Runner runner(*model, store, Use::kTrain, batch, length);
  const auto optimizer = optim::make_optimizer({.kind = "adamw"}, store.flat(), store.ranges());
  MemoryPlan plan;
  store.request(plan);
  runner.request(plan);
  optimizer->request(plan);
  plan.place();
  return plan.total_bytes();
}

constexpr std::size_t kGb = 1'000'000'000;

TEST(GpuMemory, OfThreeModelsIsAsPlanned) {
  const std::size_t small = planned_bytes(test::gpt2_124m(), 32, 1024, nn::RecomputeMode::kNone);
  const std::size_t middle = planned_bytes(test::llama_1b(), 8, 1024, nn::RecomputeMode::kNone);
  const std::size_t large = planned_bytes(test::llama_8b(), 1, 1024, nn::RecomputeMode::kFull);
  // Scratch is still that of this host's kernels, and those for AMX take more: exact in both cases.
  const bool amx = ops::has_bf16_arithmetic(ops::Bf16Arithmetic::kAmx);
  EXPECT_EQ(small, 15'377'519'616u);
  EXPECT_EQ(middle, 34'398'769'152u);
  EXPECT_EQ(large, amx ? 145'239'142'400u : 145'230'753'792u);
  EXPECT_LT(middle, 80 * kGb);
  EXPECT_GT(large, 141 * kGb) << "18 bytes for each of 8 billion parameters: several GPUs";
}

}  // namespace
}  // namespace atl::parallel
