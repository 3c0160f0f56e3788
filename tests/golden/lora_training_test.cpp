// What of the PEFT library's adapters goes beyond factors of one rank: ranks and alphas by pattern,
// biases, DoRA, embeddings, stacked experts, rows of tokens. Against peft and torch
// (tools/golden/lora_training.py): logits, every gradient, and ten steps.

#include "fixture.h"

#include <ostream>

#include "atoll/model_dir/adapter.h"
#include "atoll/model_dir/model_source.h"
#include "atoll/train/step/step.h"

namespace atl::golden {
namespace {

// As in families_test.cpp.
constexpr double kLogits = 1e-5;
constexpr double kGradients = 1e-4;

struct Case {
  const char* adapter;
  const char* base;
};

// For the tests' names, which would else hold the bytes of pointers.
void PrintTo(const Case& lora, std::ostream* out) {
  *out << lora.adapter;
}

class LoraTrainingTest : public ::testing::TestWithParam<Case> {
 protected:
  LoraTrainingTest()
      : fixture_(std::string("lora_training/") + GetParam().adapter),
        base_(std::string("families/") + GetParam().base),
        tokens_(fixture_.ids("tokens")),
        targets_(fixture_.ids("targets")) {}

  // The base model, its adapter beside the weights.
  std::unique_ptr<train::TrainState> state() {
    train::StateOptions options;
    options.model = base_.config();
    options.lora = model_dir::parse_adapter_config(read_file(fixture_.path / "adapter_config.json"),
                                                   "adapter_config.json")
                       .lora;
    options.micro_batch = kBatch;
    options.context = kLength;
    options.optimizer.values = {
        {"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}, {"weight_decay", 0.1}};
    auto state = std::make_unique<train::TrainState>(options);
    state->allocate(*run_.device);
    model_dir::load_parameters(base_.path, state->model(), state->store(), run_.device->threads());
    model_dir::load_adapter(fixture_.path, state->store(), run_.device->threads());
    return state;
  }
  Batch batch(std::int64_t step) {
    const Tensor tokens = tokens_.view().rows(step, step + 1).reshaped({kBatch, kLength});
    const Tensor targets = targets_.view().rows(step, step + 1).reshaped({kBatch, kLength});
    return {.tokens = tokens, .targets = targets, .first_sample = step * kBatch};
  }

  const Fixture fixture_;
  const Fixture base_;
  test::OwnedTensor<std::int32_t> tokens_;
  test::OwnedTensor<std::int32_t> targets_;
  test::TestRun run_;
};

// Those of an adapted head, and of a tied one with rows of tokens, are only in its loss.
TEST_P(LoraTrainingTest, LogitsAreThoseOfPeft) {
  const auto held = state();
  const std::string_view name = GetParam().adapter;
  if (name.starts_with("head") || name.starts_with("tokens_")) return;
  EXPECT_LT(relative_error(logits_of(held->model(), run_, batch(0)), fixture_.numbers("logits")),
            kLogits);
}

TEST_P(LoraTrainingTest, LossAndEveryGradientAreThoseOfTorch) {
  const auto held = state();
  std::memset(held->store().grads().raw(), 0, held->store().grads().bytes());
  run_.run.loss_scale = 1.0 / (kBatch * kLength);
  const double loss = held->runner().train(run_, batch(0)) * run_.run.loss_scale;
  EXPECT_NEAR(loss, fixture_.numbers("loss")[0], 1e-5 * loss);
  std::vector<ckpt::ParamTensor> grads;
  for (const nn::Param* param : held->store().trained()) grads.push_back({param, param->grad});
  std::size_t expected = 0;
  for (const ckpt::SafetensorsEntry& entry : fixture_.expected.entries()) {
    expected += entry.name.starts_with("gradient.") ? 1 : 0;
  }
  const std::vector<ckpt::TensorSource> sources = ckpt::file_sources(grads);
  EXPECT_EQ(sources.size(), expected);
  for (const ckpt::TensorSource& source : sources) {
    std::vector<float> ours;
    source.produce([&](const void* data, std::size_t size) {
      const auto* floats = static_cast<const float*>(data);
      ours.insert(ours.end(), floats, floats + size / sizeof(float));
    });
    ASSERT_TRUE(fixture_.expected.contains("gradient." + source.name)) << source.name;
    EXPECT_LT(relative_error(ours, fixture_.numbers("gradient." + source.name)), kGradients)
        << source.name;
  }
}

TEST_P(LoraTrainingTest, TenAdamWStepsLoseWhatTorchLoses) {
  const auto held = state();
  const std::vector<float> losses = fixture_.numbers("losses");
  for (std::int64_t step = 0; step < kSteps; ++step) {
    const train::StepResult result = train::take_step(
        *held, run_.stream, {.step = step, .lr = 3e-3, .clip = 1.0}, [&] { return batch(step); });
    EXPECT_NEAR(result.loss, losses[static_cast<std::size_t>(step)], 1e-5 * result.loss) << step;
  }
}

// Before the first step DoRA multiplies rows by 1, and B is zero: the model is its base.
TEST_P(LoraTrainingTest, BeginsAsItsBaseModel) {
  const auto held = state();
  held->store().initialise(run_, 1);
  model_dir::load_parameters(base_.path, held->model(), held->store(), run_.device->threads());
  train::StateOptions options;
  options.model = base_.config();
  options.micro_batch = kBatch;
  options.context = kLength;
  train::TrainState plain(options);
  plain.allocate(*run_.device);
  model_dir::load_parameters(base_.path, plain.model(), plain.store(), run_.device->threads());
  EXPECT_LT(relative_error(logits_of(held->model(), run_, batch(0)),
                           logits_of(plain.model(), run_, batch(0))),
            kLogits);
}

INSTANTIATE_TEST_SUITE_P(
    All, LoraTrainingTest,
    ::testing::Values(Case{"patterns", "llama3"}, Case{"bias_all", "gpt2"},
                      Case{"bias_lora_only", "qwen2"}, Case{"dora", "llama3"},
                      Case{"dora_conv1d", "gpt2"}, Case{"dora_patterns", "qwen2"},
                      Case{"embedding", "llama2"}, Case{"embedding_tied", "llama3"},
                      Case{"embedding_scaled", "gemma3"}, Case{"head", "llama2"},
                      Case{"head_tied", "llama3"}, Case{"experts", "mixtral"},
                      Case{"experts_down", "qwen3_moe"}, Case{"experts_gpt_oss", "gpt_oss"},
                      Case{"tokens", "llama2"}, Case{"tokens_positions", "gpt2"},
                      Case{"tokens_scaled", "gemma3"}, Case{"tokens_tied", "llama3"}),
    [](const auto& info) { return info.param.adapter; });

}  // namespace
}  // namespace atl::golden
