// Adapters of products that ranks share, against one rank: each rank has the rows or columns of the
// factors that belong to its part of the weight.

#include <gtest/gtest.h>

#include <algorithm>

#include "atoll/parallel/draw_testing.h"

namespace atl::parallel {
namespace {

using layout_test::Layout;
using layout_test::Outcome;
using layout_test::small_model;
using layout_test::Task;

Task task_of(const std::string& family, std::int64_t heads, std::int64_t kv_heads) {
  Task task = {.model = layout_test::small_model(family, heads, kv_heads)};
  task.lora = {.rank = 3, .alpha = 6, .targets = {"all-linear"}};
  return task;
}

void expect_adapted(const Outcome& actual, const Outcome& expected) {
  layout_test::expect_close(actual, expected);
  for (const auto& [name, gradient] : expected.gradients) {
    EXPECT_TRUE(std::any_of(gradient.begin(), gradient.end(), [](double g) { return g != 0; }))
        << name;
  }
}

TEST(LoraLayouts, EveryFamilyHasTheGradientsOfOneRank) {
  for (const char* family : {"llama", "qwen2", "gpt2", "gpt_neox"}) {
    const Task task = task_of(family, 4, 4);
    const Outcome expected = train(task, {});
    for (const int tensor : {2, 4}) {
      SCOPED_TRACE(fmt::format("{} on {}", family, tensor));
      expect_adapted(train(task, {.tensor = tensor}), expected);
    }
  }
}

// Ranks that have the same key-value heads each have a part of these rows' gradient.
TEST(LoraLayouts, GroupedKeysAreCutOrCopied) {
  for (const std::int64_t kv_heads : {1, 2}) {
    for (const auto& targets : std::vector<std::vector<std::string>>{
             {"all-linear"}, {"q_proj"}, {"k_proj", "down_proj"}, {"v_proj", "up_proj"}}) {
      Task task = task_of("llama", 4, kv_heads);
      task.lora->targets = targets;
      const Outcome expected = train(task, {});
      for (const int tensor : {2, 4}) {
        SCOPED_TRACE(fmt::format("{} heads, {} on {}", kv_heads, targets.front(), tensor));
        expect_adapted(train(task, {.tensor = tensor}), expected);
      }
    }
  }
}

TEST(LoraLayouts, BeginAsOnOneRank) {
  for (const char* family : {"llama", "gpt2"}) {
    Task task = task_of(family, 4, 4);
    task.lora_starts = true;
    const Outcome expected = train(task, {});
    for (const Layout& layout : {Layout{.tensor = 2}, Layout{.tensor = 4}}) {
      EXPECT_EQ(train(task, layout).values, expected.values) << family << " " << layout.name();
    }
  }
}

TEST(LoraLayouts, BesideOtherAxes) {
  Task task = task_of("llama", 4, 2);
  task.build.recompute = nn::RecomputeMode::kFull;
  const Outcome expected = train(task, {});
  for (const Layout& layout :
       {Layout{.tensor = 2, .shard = 2, .zero = Zero::kParameters},
        Layout{.tensor = 2, .shard = 2, .zero = Zero::kOptimizer},
        Layout{.tensor = 2, .shard = 2, .replicas = 2, .zero = Zero::kGradients},
        Layout{.tensor = 2, .context = 1, .bucket_bytes = 1}}) {
    SCOPED_TRACE(layout.name());
    expect_adapted(train(task, layout), expected);
  }
}

// Lengths, biases, an embedding and ranks of their own, where ranks share the state.
TEST(LoraLayouts, WhatGoesBeyondFactorsAcrossRanks) {
  Task dora = task_of("gpt2", 4, 4);
  dora.lora->use_dora = true;
  dora.lora->ranks = {{"c_fc", 2}};
  dora.lora->bias = nn::LoraBias::kAll;
  Task embedding = task_of("llama", 4, 2);
  embedding.lora->targets = {"embed_tokens", "q_proj"};
  embedding.build.recompute = nn::RecomputeMode::kFull;
  for (const Task& task : {dora, embedding}) {
    const Outcome expected = train(task, {});
    for (const Layout& layout : {Layout{.shard = 2, .zero = Zero::kParameters},
                                 Layout{.shard = 2, .zero = Zero::kGradients},
                                 Layout{.shard = 2, .replicas = 2, .zero = Zero::kOptimizer}}) {
      SCOPED_TRACE(layout.name());
      expect_adapted(train(task, layout), expected);
    }
  }
}

// Stacked experts: ranks that share products have both factors of each expert, and each the
// gradient of its part.
TEST(LoraLayouts, ExpertsHaveTheGradientsOfOneRank) {
  for (const char* family : {"mixtral", "qwen3_moe"}) {
    Task task = {.model = small_model(family, 4, 2), .build = {.experts = layout_test::kExperts}};
    task.model.experts.intermediate_size = 7;
    task.lora = {.rank = 3,
                 .alpha = 6,
                 .targets = {"q_proj"},
                 .target_parameters = {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}};
    const Outcome expected = train(task, {});
    for (const Layout& layout :
         {Layout{.tensor = 2}, Layout{.pipeline = 2}, Layout{.tensor = 2, .pipeline = 2},
          Layout{.shard = 2, .zero = Zero::kParameters},
          Layout{.tensor = 2, .shard = 2, .zero = Zero::kGradients},
          Layout{.shard = 2, .replicas = 2, .zero = Zero::kOptimizer}}) {
      SCOPED_TRACE(fmt::format("{} {}", family, layout.name()));
      expect_adapted(train(task, layout), expected);
    }
    task.lora_starts = true;
    EXPECT_EQ(train(task, {.tensor = 2}).values, train(task, {}).values) << family;
  }
}

// Rows of tokens, of a model whose head has a table of its own.
TEST(LoraLayouts, RowsOfTokensHaveTheGradientsOfOneRank) {
  for (const char* family : {"llama", "gpt2"}) {
    Task task = task_of(family, 4, 4);
    task.model.tie_embeddings = false;
    task.lora->tokens = {{"", {3, 0, 11}}};
    task.documents = true;
    const Outcome expected = train(task, {});
    for (const Layout& layout :
         {Layout{.pipeline = 2}, Layout{.shard = 2, .zero = Zero::kParameters},
          Layout{.shard = 2, .zero = Zero::kGradients}, Layout{.context = 2},
          Layout{.pipeline = 2, .shard = 2, .zero = Zero::kOptimizer}}) {
      SCOPED_TRACE(fmt::format("{} {}", family, layout.name()));
      expect_adapted(train(task, layout), expected);
    }
  }
}

// What is dropped depends on the sample, not on the rank that has it.
TEST(LoraLayouts, SavedModulesAndDropoutAcrossRanks) {
  Task task = task_of("llama", 4, 2);
  task.lora->modules_to_save = {"norm"};
  task.lora->dropout = 0.3;
  const Outcome expected = train(task, {});
  EXPECT_TRUE(expected.gradients.contains("model.norm.weight"));
  for (const Layout& layout :
       {Layout{.shard = 2, .zero = Zero::kParameters}, Layout{.shard = 2, .zero = Zero::kGradients},
        Layout{.shard = 2, .replicas = 2, .zero = Zero::kOptimizer}}) {
    SCOPED_TRACE(layout.name());
    expect_adapted(train(task, layout), expected);
  }
}

}  // namespace
}  // namespace atl::parallel
