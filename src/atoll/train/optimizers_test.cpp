// Every optimizer on a whole model: it learns, and a checkpoint keeps what it needs.

#include <gtest/gtest.h>

#include "atoll/ckpt/safetensors/safetensors.h"
#include "atoll/ckpt/testing.h"
#include "atoll/train/checkpointing.h"
#include "atoll/train/testing.h"

namespace atl::train {
namespace {

namespace fs = std::filesystem;
using optim::OptimizerKind;
using testing::Bench;

const Position kPosition = {.step = 3, .settings = {{"train.steps", "5"}}};

struct Case {
  const char* name;
  OptimizerKind kind;
  double lr;
};

class Optimizers : public ::testing::TestWithParam<Case> {
 protected:
  StateOptions options() const {
    StateOptions options = {.model = testing::tiny_model("llama"), .micro_batch = 4, .context = 16};
    options.optimizer.kind = GetParam().kind;
    return options;
  }
  StepResult step(Bench& bench, std::int64_t number) const {
    return bench.step({.step = number, .lr = GetParam().lr});
  }
};

INSTANTIATE_TEST_SUITE_P(All, Optimizers,
                         ::testing::Values(Case{"adamw", OptimizerKind::kAdamW, 0.01},
                                           Case{"muon", OptimizerKind::kMuon, 0.01},
                                           Case{"lion", OptimizerKind::kLion, 0.002},
                                           Case{"sgd", OptimizerKind::kSgd, 0.05}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Optimizers, LowersTheLossOfOneBatch) {
  Bench bench(options());
  const double first = step(bench, 0).loss;
  double last = first;
  for (std::int64_t number = 1; number < 12; ++number) last = step(bench, number).loss;
  EXPECT_LT(last, first - 0.3);
}

TEST_P(Optimizers, GoesOnFromACheckpointBitForBit) {
  const ckpt::testing::TemporaryDirectory directory("optimizers");
  Bench bench(options());
  for (std::int64_t number = 0; number < 3; ++number) step(bench, number);
  const fs::path path = save_checkpoint(directory / "checkpoints", bench.state, kPosition, {});
  Bench other(options());
  load_checkpoint(ckpt::verify_checkpoint(path), other.state, other.run.device->threads());
  EXPECT_EQ(other.moments(), bench.moments());
  for (std::int64_t number = 3; number < 5; ++number) {
    EXPECT_EQ(step(other, number).loss, step(bench, number).loss);
  }
  EXPECT_EQ(other.values(), bench.values());
  EXPECT_EQ(other.moments(), bench.moments());
}

TEST_P(Optimizers, EveryParameterHasItsStateInTheFile) {
  const ckpt::testing::TemporaryDirectory directory("optimizers");
  Bench bench(options());
  const fs::path path = save_checkpoint(directory / "checkpoints", bench.state, kPosition, {});
  const ckpt::SafetensorsFile file(path / "optimizer.safetensors");
  const bool moments = GetParam().kind == OptimizerKind::kAdamW;
  const bool muon = GetParam().kind == OptimizerKind::kMuon;
  std::size_t expected = 0;
  const auto expect_entry = [&](const std::string& name) {
    EXPECT_NO_THROW(file.spec(name)) << name;
    ++expected;
  };
  for (const nn::Param* param : bench.state.store().trained()) {
    for (const nn::FileTensor& part : param->files) {
      const bool matrix = param->spec.shape.rank() == 2 && !param->is_embedding;
      const bool buffer = GetParam().kind == OptimizerKind::kSgd || (muon && matrix);
      expect_entry((buffer ? "momentum_buffer." : "exp_avg.") + part.name);
      if (moments || (muon && !matrix)) expect_entry("exp_avg_sq." + part.name);
    }
  }
  EXPECT_EQ(file.entries().size(), expected);
}

}  // namespace
}  // namespace atl::train
