// Whole models of every family through the runner: gradients against central differences in double,
// and what must not change a bit.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "atoll/nn/models/family.h"
#include "atoll/ops/testing.h"
#include "atoll/parallel/runner/runner.h"
#include "atoll/parallel/store/store_single.h"

namespace atl::parallel {
namespace {

constexpr std::int64_t kVocab = 13;
constexpr std::int64_t kBatch = 2;
constexpr std::int64_t kLength = 5;

nn::ModelConfig llama(bool tied) {
  nn::ModelConfig config;
  config.family = "llama";
  config.vocab_size = kVocab;
  config.hidden_size = 12;
  config.num_layers = 2;
  config.heads = {.num_heads = 3, .num_kv_heads = 1, .head_dim = 4};
  config.intermediate_size = 10;
  config.max_positions = 8;
  config.initializer_range = 0.3;  // far from zero: every path carries a gradient
  config.tie_embeddings = tied;
  return config;
}

nn::ModelConfig gpt2() {
  nn::ModelConfig config = llama(true);
  config.family = "gpt2";
  config.heads = {.num_heads = 3, .num_kv_heads = 3, .head_dim = 4};
  config.intermediate_size = 20;
  config.activation = "gelu_new";
  config.attention_bias = true;
  config.mlp_bias = true;
  return config;
}

// Heads that are narrower than hidden_size / heads, as all families but gpt2 allow.
nn::ModelConfig grouped(const char* family) {
  nn::ModelConfig config = llama(true);
  config.family = family;
  config.heads = {.num_heads = 2, .num_kv_heads = 1, .head_dim = 4};
  return config;
}

// A model with its memory, and one fixed batch.
struct Bench {
  Bench(const nn::ModelConfig& config, const nn::BuildOptions& options, int threads = 2,
        std::int64_t batch_size = kBatch, std::int64_t length = kLength)
      : run(threads, 64),
        model(nn::build_model(config, options)),
        store(*model, true),
        runner(*model, store, Use::kTrain, batch_size, length),
        tokens(test::random_tokens({batch_size, length}, config.vocab_size, 1)),
        targets(test::random_tokens({batch_size, length}, config.vocab_size, 2)) {
    MemoryPlan plan;
    store.request(plan);
    runner.request(plan);
    plan.place();
    arena = std::make_unique<Arena>(*run.device, plan);
    store.bind(*arena);
    runner.bind(*arena);
    store.initialise(run, 5);
    run.run.seed = 9;
    run.run.loss_scale = 1.0 / static_cast<double>(batch_size * length);
    batch = {tokens, targets, 0};
  }

  double train() {
    std::memset(store.grads().raw(), 0, store.grads().bytes());
    return runner.train(run, batch) * run.run.loss_scale;
  }
  // The loss with dropout as in training; a forward pass alone would switch it off.
  double loss() { return train(); }

  std::vector<std::byte> grads() const {
    const auto* data = static_cast<const std::byte*>(store.grads().raw());
    return {data, data + store.grads().bytes()};
  }

  test::TestRun run;
  std::unique_ptr<nn::Model> model;
  SingleStore store;
  Runner runner;
  std::unique_ptr<Arena> arena;
  test::OwnedTensor<std::int32_t> tokens, targets;
  Batch batch;
};

void expect_gradients(const nn::ModelConfig& config, nn::BuildOptions options,
                      Tensor positions = {}) {
  options.dtype = Dtype::kF64;
  Bench bench(config, options);
  bench.batch.positions = positions;
  bench.targets[3] = kIgnoreTarget;
  bench.train();
  const std::int64_t count = bench.store.flat().shape.num_elements();
  double* values = bench.store.values().data<double>();
  const double* grads = bench.store.grads().data<double>();
  const std::vector<double> analytic(grads, grads + count);
  double largest = 0;
  for (const double g : analytic) largest = std::max(largest, std::abs(g));
  ASSERT_GT(largest, 1e-3);
  // Every parameter tensor, at up to seven elements spread over it.
  for (std::size_t p = 0; p < bench.store.params().size(); ++p) {
    const nn::Param& param = *bench.store.params()[p];
    const std::int64_t size = param.spec.shape.num_elements();
    for (std::int64_t k = 0; k < size; k += std::max<std::int64_t>(1, size / 7)) {
      const std::int64_t at = bench.store.offset(p) + k;
      constexpr double kStep = 1e-5;
      const double saved = values[at];
      values[at] = saved + kStep;
      const double up = bench.loss();
      values[at] = saved - kStep;
      const double down = bench.loss();
      values[at] = saved;
      // h^2 truncation and eps/h rounding are both about 1e-10 here.
      EXPECT_NEAR(analytic[static_cast<std::size_t>(at)], (up - down) / (2 * kStep), 1e-8)
          << param.name << "[" << k << "]";
    }
  }
}

TEST(Llama, WholeModelGradientsMatchFiniteDifferences) {
  expect_gradients(llama(false), {});
  expect_gradients(llama(true), {});
}

TEST(Llama, WholeModelGradientsMatchFiniteDifferencesWithDropoutAndRecompute) {
  expect_gradients(llama(true), {.recompute = nn::RecomputeMode::kFull, .dropout = 0.3});
}

TEST(Gpt2, WholeModelGradientsMatchFiniteDifferences) {
  expect_gradients(gpt2(), {});
}

TEST(Gpt2, WholeModelGradientsMatchFiniteDifferencesWithDropoutAndRecompute) {
  expect_gradients(gpt2(), {.recompute = nn::RecomputeMode::kFull, .dropout = 0.3});
}

TEST(Mistral, WholeModelGradientsMatchFiniteDifferences) {
  nn::ModelConfig config = grouped("mistral");
  config.sliding_window = 2;
  expect_gradients(config, {});
}

TEST(Qwen2, WholeModelGradientsMatchFiniteDifferences) {
  nn::ModelConfig config = grouped("qwen2");
  config.sliding_window = 2;
  config.windowed_layers = {false, true};
  expect_gradients(config, {});
}

TEST(Qwen3, WholeModelGradientsMatchFiniteDifferences) {
  expect_gradients(grouped("qwen3"), {});
  expect_gradients(grouped("qwen3"), {.recompute = nn::RecomputeMode::kFull, .dropout = 0.3});
}

TEST(Llama, WholeModelGradientsMatchFiniteDifferencesWithBiasesAndStretchedRotation) {
  nn::ModelConfig config = llama(true);
  config.attention_bias = config.mlp_bias = true;
  config.rope_scaling = {.kind = nn::RopeScaling::Kind::kLlama3,
                         .factor = 4,
                         .low_freq_factor = 1,
                         .high_freq_factor = 4,
                         .original_max_positions = 16};
  expect_gradients(config, {});
}

TEST(Runner, WholeModelGradientsMatchFiniteDifferencesOverPackedDocuments) {
  test::OwnedTensor<std::int32_t> positions({kBatch, kLength});
  positions.values = {0, 1, 0, 0, 1, 0, 0, 1, 2, 3};
  for (const nn::ModelConfig& config : {grouped("qwen3"), gpt2()}) {
    expect_gradients(config, {}, positions);
  }
}

// A size at which every fast path has tails and several tasks.
nn::ModelConfig wider(nn::ModelConfig config) {
  config.vocab_size = 301;
  config.hidden_size = 60;
  config.heads.head_dim = 20;
  config.intermediate_size = 100;
  config.max_positions = 96;
  return config;
}

TEST(Runner, ThreadCountChangesNoBit) {
  for (const nn::ModelConfig& config : {wider(llama(true)), wider(gpt2())}) {
    Bench one(config, {.dropout = 0.1}, 1, 3, 70);
    Bench two(config, {.dropout = 0.1}, 2, 3, 70);
    Bench three(config, {.dropout = 0.1}, 3, 3, 70);
    const double loss = one.train();
    EXPECT_EQ(loss, two.train());
    EXPECT_EQ(loss, three.train());
    EXPECT_EQ(one.grads(), two.grads());
    EXPECT_EQ(one.grads(), three.grads());
  }
}

TEST(Runner, RecomputeChangesNoBitAndTakesLessMemory) {
  nn::ModelConfig config = wider(llama(true));
  config.num_layers = 6;
  Bench kept(config, {.dropout = 0.1}, 2, 3, 70);
  Bench again(config, {.recompute = nn::RecomputeMode::kFull, .dropout = 0.1}, 2, 3, 70);
  Bench mlps(config, {.recompute = nn::RecomputeMode::kSelective, .dropout = 0.1}, 2, 3, 70);
  const double loss = kept.train();
  EXPECT_EQ(loss, again.train());
  EXPECT_EQ(loss, mlps.train());
  EXPECT_EQ(kept.grads(), again.grads());
  EXPECT_EQ(kept.grads(), mlps.grads());
  EXPECT_LT(again.arena->bytes(), kept.arena->bytes() * 3 / 4);
  EXPECT_LT(mlps.arena->bytes(), kept.arena->bytes() * 9 / 10);
  EXPECT_LT(again.arena->bytes(), mlps.arena->bytes());
}

TEST(Runner, SinglePrecisionAgreesWithDouble) {
  for (const nn::ModelConfig& config : {wider(llama(false)), wider(gpt2())}) {
    Bench single(config, {}, 2, 3, 70);
    Bench exact(config, {.dtype = Dtype::kF64}, 2, 3, 70);
    // f32 rounding (6e-8) over the depth of the network and sums of some hundred terms.
    EXPECT_NEAR(single.train(), exact.train(), 1e-5);
    ASSERT_EQ(single.store.params().size(), exact.store.params().size());
    for (std::size_t p = 0; p < single.store.params().size(); ++p) {
      const Tensor a = single.store.params()[p]->grad;
      const Tensor b = exact.store.params()[p]->grad;
      double worst = 0;
      double largest = 0;
      for (std::int64_t i = 0; i < a.num_elements(); ++i) {
        const double truth = b.data<double>()[i];
        worst = std::max(worst, std::abs(a.data<float>()[i] - truth));
        largest = std::max(largest, std::abs(truth));
      }
      EXPECT_LT(worst, 1e-4 * largest + 1e-9) << single.store.params()[p]->name;
    }
  }
}

TEST(ParamStore, TiedParametersAreCountedOnce) {
  const auto tied = nn::build_model(llama(true), {});
  const auto untied = nn::build_model(llama(false), {});
  EXPECT_EQ(nn::count_parameters(*untied).total - nn::count_parameters(*tied).total, kVocab * 12);
  EXPECT_EQ(SingleStore(*untied, true).params().size(),
            SingleStore(*tied, true).params().size() + 1);
}

TEST(ParamStore, InitialValuesDependOnTheSeedAlone) {
  Bench a(llama(true), {}, 1);
  Bench b(llama(true), {}, 3);
  EXPECT_EQ(std::memcmp(a.store.values().raw(), b.store.values().raw(), a.store.values().bytes()),
            0);
  b.store.initialise(b.run, 6);
  EXPECT_NE(std::memcmp(a.store.values().raw(), b.store.values().raw(), a.store.values().bytes()),
            0);
}

TEST(Runner, RefusesABatchOfAnotherShape) {
  Bench bench(llama(true), {});
  const auto other = test::random_tokens({kBatch, kLength + 1}, kVocab, 1);
  auto tokens = other;
  EXPECT_THROW(bench.runner.evaluate(bench.run, {tokens, tokens, 0}), Error);
}

}  // namespace
}  // namespace atl::parallel
