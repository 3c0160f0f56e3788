// Adapters of the PEFT library against peft and torch: logits, every gradient, merging, files.

#include "fixture.h"

#include <ostream>

#include "atoll/model_dir/adapter.h"

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

class LoraTest : public ::testing::TestWithParam<Case> {
 protected:
  LoraTest()
      : fixture_(std::string("lora/") + GetParam().adapter),
        base_(std::string("families/") + GetParam().base),
        tokens_(fixture_.ids("tokens")),
        targets_(fixture_.ids("targets")),
        config_(model_dir::parse_adapter_config(read_file(fixture_.path / "adapter_config.json"),
                                                "adapter_config.json")) {}

  // The base model; with its adapter beside the weights, or without any.
  std::unique_ptr<train::TrainState> state(bool with_adapter) {
    train::StateOptions options;
    options.model = base_.config();
    if (with_adapter) options.lora = config_.lora;
    options.micro_batch = kBatch;
    options.context = kLength;
    auto state = std::make_unique<train::TrainState>(options);
    state->allocate(*run_.device);
    model_dir::load_parameters(base_.path, state->model(), state->store(), run_.device->threads());
    if (with_adapter)
      model_dir::load_adapter(fixture_.path, state->store(), run_.device->threads());
    return state;
  }
  Batch batch() { return {.tokens = tokens_.view(), .targets = targets_.view()}; }

  const Fixture fixture_;
  const Fixture base_;
  test::OwnedTensor<std::int32_t> tokens_;
  test::OwnedTensor<std::int32_t> targets_;
  const model_dir::AdapterConfig config_;
  test::TestRun run_;
};

TEST_P(LoraTest, LogitsAreThoseOfPeft) {
  const auto held = state(true);
  EXPECT_LT(relative_error(logits_of(held->model(), run_, batch()), fixture_.numbers("logits")),
            kLogits);
}

TEST_P(LoraTest, LossAndEveryGradientAreThoseOfTorch) {
  const auto held = state(true);
  std::memset(held->store().grads().raw(), 0, held->store().grads().bytes());
  run_.run.loss_scale = 1.0 / (kBatch * kLength);
  const double loss = held->runner().train(run_, batch()) * run_.run.loss_scale;
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
    EXPECT_LT(relative_error(ours, fixture_.numbers("gradient." + source.name)), kGradients)
        << source.name;
  }
}

TEST_P(LoraTest, MergedIsWhatPeftMerges) {
  const auto held = state(false);
  model_dir::merge_adapter(fixture_.path, held->model());
  EXPECT_LT(
      relative_error(logits_of(held->model(), run_, batch()), fixture_.numbers("merged_logits")),
      kLogits);
}

TEST_P(LoraTest, TheAdapterGoesBackBitForBit) {
  const auto held = state(true);
  std::vector<ckpt::ParamTensor> values;
  for (const nn::Param* param : held->store().trained()) values.push_back({param, param->value});
  const ckpt::SafetensorsFile original(fixture_.path / "adapter_model.safetensors");
  const std::vector<ckpt::TensorSource> sources = ckpt::file_sources(values);
  EXPECT_EQ(sources.size(), original.entries().size());
  for (const ckpt::TensorSource& source : sources) {
    std::string ours;
    source.produce([&](const void* data, std::size_t size) {
      ours.append(static_cast<const char*>(data), size);
    });
    const std::span<const std::byte> theirs = original.bytes(source.name);
    ASSERT_EQ(ours.size(), theirs.size()) << source.name;
    EXPECT_EQ(std::memcmp(ours.data(), theirs.data(), theirs.size()), 0) << source.name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, LoraTest,
                         ::testing::Values(Case{"query_value", "llama3"},
                                           Case{"all_linear", "qwen2"}, Case{"conv1d", "gpt2"},
                                           Case{"by_head", "gpt_neox"},
                                           Case{"latent", "deepseek_v3"}),
                         [](const auto& info) { return info.param.adapter; });

}  // namespace
}  // namespace atl::golden
