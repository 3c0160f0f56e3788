// What training takes of a GPU's memory, planned without one: bf16 with f32 masters, a micro-batch
// of whole sequences, recompute where it must be.

#include <gtest/gtest.h>

#include "atoll/nn/models/family.h"
#include "atoll/ops/bf16_arithmetic.h"
#include "atoll/optim/optimizer.h"
#include "atoll/parallel/runner.h"
#include "atoll/parallel/store_single.h"

namespace atl::parallel {
namespace {

std::size_t planned_bytes(const nn::ModelConfig& config, std::int64_t batch, std::int64_t length,
                          nn::RecomputeMode recompute) {
  const auto model = nn::build_model(config, {.dtype = Dtype::kBf16, .recompute = recompute});
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

nn::ModelConfig gpt2_124m() {
  nn::ModelConfig config;
  config.family = "gpt2";
  config.vocab_size = 50304;
  config.hidden_size = 768;
  config.num_layers = 12;
  config.heads = {.num_heads = 12, .num_kv_heads = 12, .head_dim = 64};
  config.intermediate_size = 3072;
  config.max_positions = 1024;
  config.activation = "gelu_new";
  config.attention_bias = config.mlp_bias = config.tie_embeddings = true;
  return config;
}

// Llama 3.2 1B and Llama 3.1 8B.
nn::ModelConfig llama(std::int64_t width, std::int64_t layers, std::int64_t heads,
                      std::int64_t intermediate, bool tied) {
  nn::ModelConfig config;
  config.family = "llama";
  config.vocab_size = 128256;
  config.hidden_size = width;
  config.num_layers = layers;
  config.heads = {.num_heads = heads, .num_kv_heads = 8, .head_dim = width / heads};
  config.intermediate_size = intermediate;
  config.max_positions = 8192;
  config.tie_embeddings = tied;
  return config;
}

constexpr std::size_t kGb = 1'000'000'000;

TEST(GpuMemory, OfThreeModelsIsAsPlanned) {
  const std::size_t small = planned_bytes(gpt2_124m(), 32, 1024, nn::RecomputeMode::kNone);
  const std::size_t middle =
      planned_bytes(llama(2048, 16, 32, 8192, true), 8, 1024, nn::RecomputeMode::kNone);
  const std::size_t large =
      planned_bytes(llama(4096, 32, 32, 14336, false), 1, 1024, nn::RecomputeMode::kFull);
  // Scratch is still that of this host's kernels, and those for AMX take more: exact in both cases.
  const bool amx = ops::has_bf16_arithmetic(ops::Bf16Arithmetic::kAmx);
  EXPECT_EQ(small, 9'563'952'128u);
  EXPECT_EQ(middle, amx ? 29'898'248'192u : 29'864'693'760u);
  EXPECT_EQ(large, amx ? 145'207'685'120u : 145'199'296'512u);
  EXPECT_LT(middle, 80 * kGb);
  EXPECT_GT(large, 141 * kGb) << "18 bytes for each of 8 billion parameters: several GPUs";
}

}  // namespace
}  // namespace atl::parallel
