// Losses of answers that are compared, against torch (tools/golden/preferences.py): references,
// every gradient, and ten steps with their rewards.

#include "atoll/nn/preference_head.h"

#include <ostream>

#include "atoll/model_dir/model_source.h"

#include "fixture.h"

namespace atl::golden {
namespace {

constexpr double kGradients = 1e-4;  // as in families_test.cpp
// Of ten steps: answers have log-probabilities down to -100 nats, in f32 sums with an error of some
// 16 eps of that, which beta multiplies.
constexpr double kSteppedLoss = 16 * 1.2e-7 * 100 * 0.3;
constexpr std::int64_t kRows = 4;

struct Case {
  const char* name;
  const char* base;
  nn::PreferenceOptions options;
};

// For the tests' names, which would else hold the bytes of pointers.
void PrintTo(const Case& one, std::ostream* out) {
  *out << one.name;
}

class PreferencesTest : public ::testing::TestWithParam<Case> {
 protected:
  PreferencesTest()
      : fixture_(std::string("preferences/") + GetParam().name),
        base_(std::string("families/") + GetParam().base),
        tokens_(fixture_.ids("tokens")),
        targets_(fixture_.ids("targets")),
        labels_(fixture_.ids("labels")) {
    train::StateOptions options;
    options.model = base_.config();
    options.micro_batch = kRows;
    options.context = kLength;
    options.optimizer.values = {
        {"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}, {"weight_decay", 0.1}};
    options.preference = GetParam().options;
    options.preference_source = source_;
    state_ = std::make_unique<train::TrainState>(options);
    state_->allocate(*run_.device);
    model_dir::load_parameters(base_.path, state_->model(), state_->store(),
                               run_.device->threads());
  }

  Batch batch(std::int64_t step) {
    const Tensor tokens = tokens_.view().rows(step, step + 1).reshaped({kRows, kLength});
    const Tensor targets = targets_.view().rows(step, step + 1).reshaped({kRows, kLength});
    return {.tokens = tokens,
            .targets = targets,
            .first_sample = step * kRows,
            .step_targets = kRows / 2};
  }
  // From here on the head compares with references of the fixture.
  void compare_with(const std::string& tensor) {
    references_ = fixture_.numbers(tensor);
    source_->of = [this](std::int64_t sample) {
      const std::int64_t pair = sample / 2;
      return nn::SampleFacts{
          .reference = references_.at(static_cast<std::size_t>(sample)),
          .is_desirable = labels_.values.at(static_cast<std::size_t>(pair)) != 0};
    };
  }

  const Fixture fixture_;
  const Fixture base_;
  test::OwnedTensor<std::int32_t> tokens_, targets_, labels_;
  std::vector<float> references_;
  std::shared_ptr<nn::PreferenceSource> source_ = std::make_shared<nn::PreferenceSource>();
  test::TestRun run_;
  std::unique_ptr<train::TrainState> state_;
};

TEST_P(PreferencesTest, ReferencesAreThoseOfTorch) {
  std::vector<float> ours;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    state_->runner().evaluate(run_, batch(step));
    for (const double loss : nn::sums_of_rows(state_->runner().losses())) {
      ours.push_back(static_cast<float>(-loss));
    }
  }
  EXPECT_LT(relative_error(ours, fixture_.numbers("references")), 1e-5);
}

TEST_P(PreferencesTest, LossAndEveryGradientAreThoseOfTorch) {
  compare_with("shifted");
  std::memset(state_->store().grads().raw(), 0, state_->store().grads().bytes());
  run_.run.loss_scale = 1.0 / (kRows * kLength);
  const Batch first = batch(0);
  state_->runner().train(run_, first);
  const double loss = nn::sums_of_pairs(state_->runner().losses()).loss / (kRows / 2);
  EXPECT_NEAR(loss, fixture_.numbers("loss")[0], 1e-5 * std::max(1.0, loss));
  const auto ours = as_files(state_->store(), [](const nn::Param& param) { return param.grad; });
  std::size_t compared = 0;
  for (const ckpt::SafetensorsEntry& entry : fixture_.expected.entries()) {
    if (!entry.name.starts_with("gradient.")) continue;
    const std::string name = entry.name.substr(9);
    ASSERT_TRUE(ours.contains(name)) << name;
    EXPECT_LT(relative_error(ours.at(name), fixture_.numbers(entry.name)), kGradients) << name;
    ++compared;
  }
  EXPECT_EQ(compared, ours.size());
}

TEST_P(PreferencesTest, TenStepsHaveTheLossesAndRewardsOfTorch) {
  compare_with("references");
  const std::vector<float> losses = fixture_.numbers("losses");
  const std::vector<float> means = fixture_.numbers("means");
  for (std::int64_t step = 0; step < kSteps; ++step) {
    const train::StepResult result = train::take_step(
        *state_, run_.stream, {.step = step, .lr = 3e-3, .clip = 1.0}, [&] { return batch(step); });
    const auto at = static_cast<std::size_t>(step);
    EXPECT_NEAR(result.loss, losses[at], kSteppedLoss * std::max(1.0, result.loss)) << step;
    ASSERT_TRUE(result.preferences.has_value());
    const nn::PreferenceSums& sums = *result.preferences;
    EXPECT_EQ(sums.num_pairs, kRows / 2);
    const auto mean = [](double sum, double count) { return count > 0 ? sum / count : 0; };
    EXPECT_NEAR(mean(sums.chosen_reward, sums.num_chosen), means[3 * at], 2 * kSteppedLoss) << step;
    EXPECT_NEAR(mean(sums.rejected_reward, sums.num_rejected), means[3 * at + 1], 2 * kSteppedLoss)
        << step;
    // Before the first step all answers are as likely as before, but for rounding.
    if (step == 0) continue;
    EXPECT_NEAR(sums.num_right / sums.num_pairs, means[3 * at + 2], 1e-6) << step;
  }
}

using nn::PreferenceKind;
constexpr double kBeta = 0.3;
INSTANTIATE_TEST_SUITE_P(
    All, PreferencesTest,
    ::testing::Values(
        Case{"sigmoid", "llama3", {.beta = kBeta}},
        Case{"smoothed", "qwen2", {.beta = kBeta, .label_smoothing = 0.2}},
        Case{"robust",
             "llama3",
             {.kind = PreferenceKind::kRobust, .beta = kBeta, .label_smoothing = 0.1}},
        Case{"ipo", "llama3", {.kind = PreferenceKind::kIpo, .beta = kBeta}},
        Case{"hinge", "gpt2", {.kind = PreferenceKind::kHinge, .beta = kBeta}},
        Case{"orpo", "llama3", {.kind = PreferenceKind::kOrpo, .beta = kBeta}},
        Case{"kto",
             "llama3",
             {.kind = PreferenceKind::kKto, .beta = kBeta, .undesirable_weight = 1.5}},
        Case{"capped", "gemma2", {.beta = kBeta}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace atl::golden
