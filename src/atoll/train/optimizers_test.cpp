// Every optimizer on a whole model: it learns, and a checkpoint keeps what it needs.

#include <gtest/gtest.h>

#include "atoll/ckpt/safetensors/safetensors.h"
#include "atoll/ckpt/testing.h"
#include "atoll/optim/registry.h"
#include "atoll/train/checkpoint/contents.h"
#include "atoll/train/testing.h"

namespace atl::train {
namespace {

namespace fs = std::filesystem;
using testing::Bench;

const Position kPosition = {.step = 3, .settings = {{"train.steps", "5"}}};

class Optimizers : public ::testing::TestWithParam<const optim::OptimizerKind*> {
 protected:
  std::string name() const { return GetParam()->name; }
  StateOptions options() const {
    StateOptions options = {.model = testing::tiny_model("llama"), .micro_batch = 4, .context = 16};
    options.optimizer.kind = name();
    return options;
  }
  StepResult step(Bench& bench, std::int64_t number) const {
    // Lion's steps are larger than AdamW's, SGD's are as small as gradients.
    const double lr = name() == "lion" ? 0.002 : name() == "sgd" ? 0.05 : 0.01;
    return bench.step({.step = number, .lr = lr});
  }
};

std::vector<const optim::OptimizerKind*> all_kinds() {
  std::vector<const optim::OptimizerKind*> kinds;
  for (const optim::OptimizerKind& kind : optim::optimizer_kinds()) kinds.push_back(&kind);
  return kinds;
}

INSTANTIATE_TEST_SUITE_P(All, Optimizers, ::testing::ValuesIn(all_kinds()),
                         [](const auto& info) { return std::string(info.param->name); });

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

// Every trained parameter, and so every file tensor, has all of the optimizer's state vectors;
// where only some are for hidden matrices, a parameter has one kind or the other.
TEST_P(Optimizers, EveryParameterHasItsStateInTheFile) {
  const ckpt::testing::TemporaryDirectory directory("optimizers");
  Bench bench(options());
  const fs::path path = save_checkpoint(directory / "checkpoints", bench.state, kPosition, {});
  const ckpt::SafetensorsFile file(path / "optimizer.safetensors");
  std::size_t expected = 0;
  for (const nn::Param* param : bench.state.store().trained()) {
    for (const nn::FileTensor& part : param->files) {
      const bool matrix = param->spec.shape.rank() == 2 && !param->is_embedding;
      for (const std::string vector : GetParam()->state_vectors) {
        // Muon has momentum for matrices, and AdamW's moments for the rest.
        if (name() == "muon" && matrix != (vector == "momentum_buffer")) continue;
        EXPECT_NO_THROW(file.spec(vector + "." + part.name)) << vector << "." << part.name;
        ++expected;
      }
    }
  }
  EXPECT_EQ(file.entries().size(), expected);
}

}  // namespace
}  // namespace atl::train
