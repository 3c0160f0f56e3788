// The promise that a new thing is one file: an optimizer and a family of this test's own are used
// like the program's.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/files/file.h"
#include "atoll/base/settings/settings.h"
#include "atoll/ckpt/checkpoint.h"
#include "atoll/ckpt/testing.h"
#include "atoll/train/checkpoint/contents.h"
#include "atoll/train/config/config.h"
#include "atoll/train/config/optimizer.h"
#include "atoll/train/registration_testing.h"
#include "atoll/train/testing.h"

namespace atl::train {
namespace {

namespace fs = std::filesystem;
using testing::Bench;
using ::testing::HasSubstr;

const Position kPosition = {.step = 2, .settings = {{"train.steps", "4"}}};

// Takes four steps, and the last two again from a checkpoint.
void expect_learns_and_goes_on(const StateOptions& options, double lr) {
  const ckpt::testing::TemporaryDirectory directory("registration");
  Bench bench(options);
  const double first = bench.step({.step = 0, .lr = lr}).loss;
  bench.step({.step = 1, .lr = lr});
  const fs::path path = save_checkpoint(directory / "checkpoints", bench.state, kPosition, {});
  EXPECT_EQ(nn::parse_config(read_file(path / "config.json"), "config.json").family,
            options.model.family);
  Bench other(options);
  load_checkpoint(ckpt::verify_checkpoint(path), other.state, other.run.device->threads());
  EXPECT_EQ(other.values(), bench.values());
  double last = first;
  for (std::int64_t step = 2; step < 4; ++step) {
    last = bench.step({.step = step, .lr = lr}).loss;
    EXPECT_EQ(other.step({.step = step, .lr = lr}).loss, last);
  }
  EXPECT_LT(last, first - 0.01);
}

TEST(Registration, AnOptimizerOfATestTrainsAndIsInSettings) {
  const optim::AddedOptimizer added(testing::sign_descent());
  StateOptions options = {.model = testing::tiny_model("llama"), .micro_batch = 4, .context = 16};
  options.optimizer.kind = "test_sign";
  expect_learns_and_goes_on(options, 0.002);

  TrainConfig config;
  Settings settings = make_settings(config);
  settings.override("--optim.kind=test_sign");
  settings.override("--optim.test_boldness=0.5");
  EXPECT_EQ(optimizer_options(config.optim).number("test_boldness"), 0.5);
  EXPECT_THAT(settings.markdown_reference(), HasSubstr("`optim.test_boldness`"));
  EXPECT_THROW(settings.override("--optim.kind=test_no"), Error);
}

TEST(Registration, IsGoneWithItsObject) {
  { const optim::AddedOptimizer added(testing::sign_descent()); }
  EXPECT_THROW(optim::find_optimizer("test_sign"), Error);
  { const nn::AddedFamily added(testing::squared_relu_family()); }
  EXPECT_THROW(nn::find_family("test_relu2", "x"), Error);
}

TEST(Registration, AFamilyOfATestTrainsAndIsExported) {
  const nn::AddedFamily added(testing::squared_relu_family());
  nn::ModelConfig model = testing::tiny_model("llama");
  model.family = "test_relu2";
  expect_learns_and_goes_on({.model = model, .micro_batch = 4, .context = 16}, 0.01);
}

}  // namespace
}  // namespace atl::train
