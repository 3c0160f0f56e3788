// Every model family against transformers and torch: logits, loss, gradients, optimizer steps,
// generation, packed documents, and files.

#include "fixture.h"

#include "atoll/ckpt/safetensors/writer.h"
#include "atoll/nn/models/rope.h"
#include "atoll/serve/inference_engine.h"

namespace atl::golden {
namespace {

// Both sides round each product's sum of at most 101 terms in f32, through some twenty layers of
// them: errors of a few eps (6e-8) of the largest element each, adding up like a random walk.
constexpr double kLogits = 1e-5;
// The backward pass doubles the depth; a small tensor's gradient is a difference of larger sums.
constexpr double kGradients = 1e-4;

class FamilyTest : public ::testing::TestWithParam<const char*> {
 protected:
  FamilyTest()
      : fixture_(std::string("families/") + GetParam()),
        tokens_(fixture_.ids("tokens")),
        targets_(fixture_.ids("targets")) {}

  // The model with its weights, ready to be trained.
  std::unique_ptr<train::TrainState> state() {
    train::StateOptions options;
    options.model = fixture_.config();
    options.optimizer.values = {
        {"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}, {"weight_decay", 0.1}};
    options.micro_batch = kBatch;
    options.context = kLength;
    options.build.max_positions =
        kLength;  // as a run's, which longrope's choice of factors follows
    auto state = std::make_unique<train::TrainState>(options);
    state->allocate(*run_.device);
    model_dir::load_parameters(fixture_.path, state->model(), state->store(),
                               run_.device->threads());
    return state;
  }
  // The batch of optimizer step `step`.
  Batch batch(std::int64_t step) {
    const Tensor tokens = tokens_.view().rows(step, step + 1).reshaped({kBatch, kLength});
    const Tensor targets = targets_.view().rows(step, step + 1).reshaped({kBatch, kLength});
    return {.tokens = tokens, .targets = targets, .first_sample = step * kBatch};
  }
  Tensor first_row() { return batch(0).tokens.rows(0, 1); }

  const Fixture fixture_;
  test::OwnedTensor<std::int32_t> tokens_;
  test::OwnedTensor<std::int32_t> targets_;
  test::TestRun run_;
};

TEST_P(FamilyTest, LogitsAreThoseOfTransformers) {
  const auto held = state();
  EXPECT_LT(relative_error(logits_of(held->model(), run_, batch(0)), fixture_.numbers("logits")),
            kLogits);
}

TEST_P(FamilyTest, LossAndEveryGradientAreThoseOfTorch) {
  const auto held = state();
  std::memset(held->store().grads().raw(), 0, held->store().grads().bytes());
  run_.run.loss_scale = 1.0 / (kBatch * kLength);
  const double loss = held->runner().train(run_, batch(0)) * run_.run.loss_scale;
  EXPECT_NEAR(loss, fixture_.numbers("loss")[0], 1e-5 * loss);
  const auto gradients = as_files(held->store(), [](const nn::Param& p) { return p.grad; });
  std::size_t expected = 0;
  for (const ckpt::SafetensorsEntry& entry : fixture_.expected.entries()) {
    const std::string prefix = "gradient.";
    if (!entry.name.starts_with(prefix)) continue;
    ++expected;
    const auto ours = gradients.find(entry.name.substr(prefix.size()));
    ASSERT_NE(ours, gradients.end()) << entry.name;
    EXPECT_LT(relative_error(ours->second, fixture_.numbers(entry.name)), kGradients) << entry.name;
  }
  EXPECT_EQ(gradients.size(), expected) << "a gradient that torch does not have";
}

TEST_P(FamilyTest, TenAdamWStepsLoseWhatTorchLoses) {
  const auto held = state();
  const std::vector<float> losses = fixture_.numbers("losses");
  for (std::int64_t step = 0; step < kSteps; ++step) {
    const train::StepResult result = train::take_step(
        *held, run_.stream, {.step = step, .lr = 3e-3, .clip = 1.0}, [&] { return batch(step); });
    EXPECT_NEAR(result.loss, losses[static_cast<std::size_t>(step)], 1e-5 * result.loss) << step;
  }
}

TEST_P(FamilyTest, GenerationFollowsTransformersGreedily) {
  serve::InferenceEngine engine(*run_.device, fixture_.config(), 64);
  model_dir::load_parameters(fixture_.path, engine.model(), engine.store(), run_.device->threads());
  const auto* row = first_row().data<std::int32_t>();
  const std::vector<float> logits = fixture_.numbers("logits");
  for (std::int64_t t = 0; t < kLength; ++t) {
    const std::span<const float> ours = engine.append({row + t, 1});
    EXPECT_LT(relative_error(
                  ours, std::span(logits).subspan(static_cast<std::size_t>(t * kVocab), kVocab)),
              kLogits)
        << "position " << t;
  }
  engine.reset();
  const auto greedy = fixture_.ids("greedy");
  serve::TokenSampler sampler({.temperature = 0});
  std::vector<std::int32_t> made;
  engine.generate({row, kPrompt}, greedy.size(), sampler, -1, [&](std::int32_t token) {
    made.push_back(token);
    return true;
  });
  EXPECT_EQ(made, greedy.values);
}

TEST_P(FamilyTest, APromptInOnePieceIsTheSameAsTokenByToken) {
  std::vector<std::int32_t> prompt(tokens_.values.begin(), tokens_.values.begin() + 64);
  serve::InferenceEngine engine(*run_.device, fixture_.config(), 64);
  model_dir::load_parameters(fixture_.path, engine.model(), engine.store(), run_.device->threads());
  const std::span<const float> view = engine.append(prompt);
  const std::vector<float> whole(view.begin(), view.end());
  engine.reset();
  std::span<const float> last;
  for (const std::int32_t& token : prompt) last = engine.append({&token, 1});
  EXPECT_LT(relative_error(last, whole), kLogits);
}

TEST_P(FamilyTest, PackedDocumentsAreComputedAsIfAlone) {
  const auto held = state();
  test::OwnedTensor<std::int32_t> positions({1, kLength});
  for (std::int32_t t = 0; t < kLength; ++t) {
    positions[t] =
        t - *std::prev(std::upper_bound(std::begin(kDocuments), std::end(kDocuments), t));
  }
  Batch packed = {.tokens = first_row()};
  packed.positions = positions;
  EXPECT_LT(
      relative_error(logits_of(held->model(), run_, packed), fixture_.numbers("packed_logits")),
      kLogits);
}

TEST_P(FamilyTest, WhatWasLoadedGoesBackBitForBit) {
  const auto held = state();
  const auto files = as_files(held->store(), [](const nn::Param& p) { return p.value; });
  const ckpt::SafetensorsFile original(fixture_.path / "model.safetensors");
  EXPECT_EQ(files.size(), original.entries().size());
  for (const ckpt::SafetensorsEntry& entry : original.entries()) {
    ASSERT_TRUE(files.contains(entry.name)) << entry.name;
    const std::vector<float>& ours = files.at(entry.name);
    const std::span<const std::byte> theirs = original.bytes(entry.name);
    ASSERT_EQ(ours.size() * sizeof(float), theirs.size()) << entry.name;
    EXPECT_EQ(std::memcmp(ours.data(), theirs.data(), theirs.size()), 0) << entry.name;
  }
  EXPECT_EQ(nn::config_json(fixture_.config()), read_file(fixture_.path / "config.json"));
}

TEST_P(FamilyTest, RotaryFrequenciesAreThoseOfTransformers) {
  const nn::ModelConfig config = fixture_.config();
  if (!fixture_.expected.contains("inv_freq")) {
    EXPECT_TRUE(config.family == "gpt2" || config.local_rope_theta > 0)
        << "gpt2 alone has learned positions; others may have several tables";
    return;
  }
  const std::vector<float> theirs = fixture_.numbers("inv_freq");
  const std::vector<float> ours =
      nn::rope_frequencies(config.rotary_dim > 0 ? config.rotary_dim : config.heads.head_dim,
                           config.rope_theta, config.rope_scaling);
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    // Their pow is another than ours: up to two roundings apart, then a few steps each.
    EXPECT_NEAR(ours[i], theirs[i], 4 * std::numeric_limits<float>::epsilon() * theirs[i]) << i;
  }
}

// The other half of `families.py check`, which says how to run both.
TEST_P(FamilyTest, WritesWhatTransformersReads) {
  const char* root = std::getenv("ATOLL_FAMILIES_ORACLE");
  if (root == nullptr) GTEST_SKIP() << "run tools/golden/families.py check";
  train::StateOptions options;
  options.build.max_positions = kLength;
  options.model = fixture_.config();
  options.model.source_json.clear();  // a new model, with the config.json that atoll writes
  options.model.initializer_range = 0.3;
  train::TrainState made(options);
  made.allocate(*run_.device);
  made.store().initialise(run_, 3);

  const std::filesystem::path directory = std::filesystem::path(root) / GetParam();
  std::filesystem::create_directories(directory);
  write_file(directory / "config.json", nn::config_json(options.model));
  std::vector<ckpt::ParamTensor> held;
  for (const nn::Param* param : made.store().params()) held.push_back({param, param->value});
  ckpt::write_safetensors(directory / "model.safetensors", ckpt::file_sources(held),
                          {{"format", "pt"}});
  const Batch first = batch(0);
  std::vector<float> logits = logits_of(made.model(), run_, first);
  const std::vector<ckpt::NamedTensor> expected = {
      {"tokens", first.tokens},
      {"logits", Tensor(logits.data(), {Dtype::kF32, {kBatch, kLength, kVocab}})}};
  ckpt::write_safetensors(directory / "expected.safetensors", expected);
}

INSTANTIATE_TEST_SUITE_P(All, FamilyTest,
                         ::testing::Values("llama2", "llama3", "llama_linear", "mistral", "qwen2",
                                           "qwen3", "gpt2", "mixtral", "qwen3_moe", "smollm3",
                                           "phi3", "phi3_longrope", "granite", "gemma3", "glm4",
                                           "llama_yarn", "gemma2", "olmo2", "olmo3", "starcoder2",
                                           "gpt_neox", "gpt_neox_sequential", "gpt_oss",
                                           "deepseek_v2_lite", "deepseek_v2", "deepseek_v3",
                                           "deepseek_v3_halves"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace atl::golden
