// A checkpoint says nothing of the ranks that wrote it: any layout reads what any other wrote.

#include <gmock/gmock.h>

#include <mutex>

#include "atoll/base/files/file.h"
#include "atoll/ckpt/testing.h"
#include "atoll/model_dir/adapter.h"
#include "atoll/train/checkpoint/checkpoint_layouts_testing.h"

namespace atl::train {
namespace {

namespace fs = std::filesystem;
using testing::Layout;
using testing::model_of;
using testing::position_of;
using testing::RankOf;
using testing::tensors_of;
using testing::Variant;
using testing::Vectors;

const std::vector<Layout> kLayouts = {{1, 0},
                                      {1, 3},
                                      {2, 0},
                                      {2, 1},
                                      {3, 2},
                                      {4, 3},
                                      {4, 0},
                                      {3, 1},
                                      {2, 3},
                                      {4, 2},
                                      {2, 1, 2},
                                      {2, 3, 2},
                                      {1, 0, 1, 2},
                                      {1, 0, 1, 4},
                                      {2, 0, 1, 2},
                                      {2, 1, 1, 4},
                                      {3, 2, 1, 2},
                                      {2, 3, 1, 2},
                                      {2, 3, 2, 2},
                                      {1, 0, 1, 1, 2},
                                      {2, 2, 1, 1, 2},
                                      {2, 3, 1, 2, 2},
                                      {2, 1, 1, 1, 1, 2},
                                      {2, 3, 1, 1, 2, 2},
                                      {1, 0, 1, 1, 2, 2},
                                      {1, 0, 1, 1, 1, 1, 2},
                                      {1, 0, 1, 1, 1, 1, 4},
                                      {2, 3, 1, 1, 1, 1, 2},
                                      {1, 1, 2, 1, 1, 1, 2},
                                      {1, 2, 1, 1, 2, 1, 2},
                                      {1, 0, 1, 2, 1, 1, 2},
                                      {2, 3, 1, 2, 1, 1, 2},
                                      {1, 0, 1, 4, 1, 1, 2},
                                      {1, 1, 1, 1, 1, 2, 2},
                                      {1, 2, 1, 2, 2, 1, 2},
                                      {1, 3, 1, 2, 1, 2, 2}};

const Variant kLora = {"lora", "gpt2", "adamw", Dtype::kF32, "f32", true};

class Layouts : public ::testing::TestWithParam<Variant> {
 protected:
  void on_ranks(const Layout& layout, const std::function<void(RankOf& rank, bool lead)>& body) {
    comm::run_threads(layout.ranks(), {.timeout_s = 60}, [&](comm::World& world) {
      RankOf rank(world, GetParam(), layout);
      if (GetParam().lora)
        model_dir::load_parameters(base(), rank.state.model(), rank.state.store(), rank.threads());
      body(rank, world.rank() == 0);
    });
  }

  // A base model for LoRA.
  fs::path base() {
    const std::lock_guard lock(mutex_);
    if (!base_.empty()) return base_;
    Variant whole = GetParam();
    whole.lora = false;
    testing::Bench bench(testing::options_of(whole, {}, 0), 1);
    base_ = save_checkpoint(directory_ / "base", bench.state, position_of(0), {});
    return base_;
  }

  fs::path root(const std::string& name) const { return directory_ / name; }

  ckpt::testing::TemporaryDirectory directory_{"checkpoint-layouts",
                                               ckpt::testing::memory_directory_path()};
  std::mutex mutex_;
  fs::path base_;
};

INSTANTIATE_TEST_SUITE_P(Variants, Layouts,
                         ::testing::Values(Variant{"adamw"}, Variant{"muon", "llama", "muon"},
                                           Variant{"tied_bf16", "gpt2", "adamw", Dtype::kBf16},
                                           Variant{"muon_bf16", "gpt2", "muon", Dtype::kBf16},
                                           Variant{"stochastic", "llama", "lion", Dtype::kBf16,
                                                   "stochastic"},
                                           Variant{"experts", "mixtral"}, kLora),
                         [](const auto& info) { return info.param.name; });

TEST_P(Layouts, EachReadsWhatEachWrote) {
  // One rank trains; every layout reads its checkpoint and writes one of its own.
  fs::path expected;
  Vectors saved, continued;
  on_ranks({1, 0}, [&](RankOf& rank, bool) {
    rank.step(0);
    rank.step(1);
    expected = save_checkpoint(root("expected"), rank.state, position_of(2), {}, "base");
    saved = rank.vectors();
    rank.step(2);
    rank.step(3);
    continued = rank.vectors();
  });
  const auto expected_tensors = tensors_of(expected);
  std::vector<ckpt::CheckpointInfo> checkpoints = {ckpt::verify_checkpoint(expected)};
  for (const Layout& layout : kLayouts) {
    if (!fits(GetParam(), layout)) continue;
    fs::path path;
    on_ranks(layout, [&](RankOf& rank, bool lead) {
      load_checkpoint(checkpoints.front(), rank.state, rank.threads());
      EXPECT_TRUE(rank.holds(saved)) << layout.name();
      const fs::path written =
          save_checkpoint(root(layout.name()), rank.state, position_of(2), {}, "base");
      if (lead) path = written;
    });
    checkpoints.push_back(ckpt::verify_checkpoint(path));
    EXPECT_TRUE(tensors_of(path) == expected_tensors) << layout.name();
    EXPECT_EQ(fs::exists(path / "model.safetensors"),
              layout.ranks() == layout.replicas && !GetParam().lora);
  }
  // Every layout reads each of these, and goes on as the one rank did.
  for (const Layout& layout : kLayouts) {
    if (!fits(GetParam(), layout)) continue;
    on_ranks(layout, [&](RankOf& rank, bool) {
      for (const ckpt::CheckpointInfo& checkpoint : checkpoints) {
        rank.forget();
        EXPECT_EQ(load_checkpoint(checkpoint, rank.state, rank.threads()).tokens, 128);
        EXPECT_TRUE(rank.holds(saved)) << checkpoint.path << " in " << layout.name();
      }
      if (!layout.is_exact()) return;
      rank.step(2);
      rank.step(3);
      EXPECT_TRUE(rank.holds(continued)) << layout.name();
    });
  }
}

TEST_P(Layouts, WrittenBesideTheStepsIsTheSame) {
  for (const Layout& layout :
       {Layout{1, 0}, Layout{3, 0}, Layout{3, 3}, Layout{2, 1, 2}, Layout{2, 3, 1, 2},
        Layout{1, 2, 1, 1, 2, 2}, Layout{2, 1, 1, 1, 1, 1, 2}, Layout{1, 0, 1, 2, 1, 1, 2}}) {
    if (!fits(GetParam(), layout)) continue;
    fs::path now, beside;
    on_ranks(layout, [&](RankOf& rank, bool lead) {
      rank.step(0);
      const fs::path path =
          save_checkpoint(root("now"), rank.state, position_of(1), {{"vocab.json", "{}"}}, "base");
      const auto save = begin_save(root("beside"), rank.state, position_of(1),
                                   {{"vocab.json", "{}"}}, "base", CheckpointSave::Mode::kBeside);
      rank.step(1);
      rank.forget();
      const fs::path second = save->commit();
      EXPECT_TRUE(save->finished());
      if (!lead) return;
      now = path;
      beside = second;
    });
    // Name, size and hash of every file.
    EXPECT_EQ(read_file(now / "manifest.json"), read_file(beside / "manifest.json"))
        << layout.name();
    EXPECT_EQ(ckpt::verify_checkpoint(beside).files.size(),
              ckpt::verify_checkpoint(now).files.size());
  }
}

using LoraLayouts = Layouts;
INSTANTIATE_TEST_SUITE_P(Lora, LoraLayouts, ::testing::Values(kLora));

TEST_P(LoraLayouts, ABaseWithAnAdapterMergesIntoAnyPart) {
  fs::path adapter;
  on_ranks({1, 0}, [&](RankOf& rank, bool) {
    for (int i = 0; i < 4; ++i) rank.step(i);
    adapter = save_checkpoint(root("adapter"), rank.state, position_of(4), {}, base());
  });
  Variant whole = GetParam();
  whole.lora = false;
  Vectors expected;
  for (const Layout& layout : {Layout{1, 0}, Layout{2, 0}, Layout{3, 3}, Layout{2, 3, 2}}) {
    comm::run_threads(layout.ranks(), {.timeout_s = 60}, [&](comm::World& world) {
      RankOf rank(world, whole, layout);
      model_dir::load_parameters(adapter, rank.state.model(), rank.state.store(), rank.threads());
      if (layout.ranks() == 1) {
        expected = rank.vectors();
        model_dir::load_parameters(base(), rank.state.model(), rank.state.store(), rank.threads());
        EXPECT_FALSE(rank.holds(expected)) << "the adapter changes something";
      } else {
        EXPECT_TRUE(rank.holds({{"", expected.at("")},
                                {"exp_avg", expected.at("exp_avg")},
                                {"exp_avg_sq", expected.at("exp_avg_sq")}}))
            << layout.name();
      }
    });
  }
}

}  // namespace
}  // namespace atl::train
