// Islands that train an adapter beside frozen weights: they exchange the adapter, and must have the
// same base.

#include <gmock/gmock.h>

#include <string>
#include <thread>
#include <vector>

#include "atoll/island/coordinator/service.h"
#include "atoll/model_dir/adapter.h"
#include "atoll/train/ranks/ranks_testing.h"

namespace atl::train {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class IslandsWithLora : public RanksFixture {
 protected:
  void SetUp() override {
    RanksFixture::SetUp();
    base_ = train("base", {"--train.steps=3"}).checkpoint;
    narrow_ = train("narrow", {"--train.steps=3", "--train.dtype=bf16"}).checkpoint;
    inline_model_ = false;
    coordinator_ = std::make_unique<island::CoordinatorService>(
        island::ServiceOptions{.dir = root_ / "ledger"});
  }
  std::vector<std::string> settings(const fs::path& base, int islands, const std::string& island,
                                    const std::vector<std::string>& more = {}) {
    std::vector<std::string> all = {"--model.from=" + base.string(),
                                    "--island.coordinator=" + coordinator_->address(),
                                    "--island.listen=127.0.0.1:0",
                                    "--island.name=" + island,
                                    fmt::format("--outer.islands={}", islands),
                                    "--outer.grace_s=30",
                                    "--outer.inner_steps=2",
                                    "--lora.rank=2",
                                    "--optim.lr=0.01",
                                    "--train.dropout=0",
                                    "--train.steps=8",
                                    "--eval.every=0"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // Beside others, so nothing is captured here.
  TrainOutcome train_island(const std::vector<std::string>& all, const std::string& run) {
    TrainConfig config;
    Settings settings = make_settings(config);
    configure(settings, run, all);
    validate(config, settings);
    Trainer trainer(config, settings);
    return trainer.run();
  }
  // Two islands at once; their last checkpoints.
  std::pair<fs::path, fs::path> train_two(const fs::path& base,
                                          const std::vector<std::string>& more) {
    const auto lyon = settings(base, 2, "lyon", more), oslo = settings(base, 2, "oslo", more);
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const Captured captured;
    fs::path there;
    std::thread other([&] { there = train_island(oslo, "oslo").checkpoint; });
    const fs::path here = train_island(lyon, "lyon").checkpoint;
    other.join();
    return {here, there};
  }

  fs::path base_, narrow_;
  std::unique_ptr<island::CoordinatorService> coordinator_;
};

TEST_F(IslandsWithLora, EndWithOneAdapter) {
  const auto [here, there] =
      train_two(base_, {"--lora.bias=none", "--lora.dora=true", "--lora.modules_to_save=norm"});
  const std::string adapter = read_file(here / model_dir::kAdapterWeightsFile);
  EXPECT_EQ(adapter, read_file(there / model_dir::kAdapterWeightsFile));
  EXPECT_FALSE(fs::exists(here / "model.safetensors"));
  const ckpt::SafetensorsFile file(here / model_dir::kAdapterWeightsFile);
  EXPECT_TRUE(file.contains("base_model.model.model.norm.weight"));
}

TEST_F(IslandsWithLora, BesideABaseInTheBitsOfItsFile) {
  const auto [here, there] = train_two(narrow_, {"--model.held_as=stored"});
  EXPECT_EQ(read_file(here / model_dir::kAdapterWeightsFile),
            read_file(there / model_dir::kAdapterWeightsFile));
}

// What is frozen is not exchanged, so nobody else would notice.
TEST_F(IslandsWithLora, AnotherBaseIsRefused) {
  train("first", settings(base_, 1, "lyon"));
  const fs::path other = train("other", {"--model.from=" + base_.string(), "--train.steps=1",
                                         "--optim.warmup_steps=0"})
                             .checkpoint;
  EXPECT_THAT(error_of([&] { train("second", settings(other, 1, "oslo")); }, ErrorKind::kUser),
              HasSubstr("model"));
}

}  // namespace
}  // namespace atl::train
