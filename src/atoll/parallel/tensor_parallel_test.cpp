// Ranks that share each product against one rank: the same losses and gradients up to the order of
// sums, the same initial values, for every family.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "atoll/parallel/draw_testing.h"

namespace atl::parallel {
namespace {

using layout_test::Draw;
using layout_test::Outcome;
using layout_test::small_model;
using layout_test::Task;

// Two layers of an MLP that 4 ranks do not share evenly, and one micro-batch.
Task task_of(const std::string& family, std::int64_t heads, std::int64_t kv_heads) {
  Task task = {.model = small_model(family, heads, kv_heads), .length = 12, .micro_batches = 1};
  task.model.num_layers = 2;
  return task;
}

void expect_same(const Task& task, int num_ranks) {
  SCOPED_TRACE(fmt::format("{} with {} and {} heads on {} ranks", task.model.family,
                           task.model.heads.num_heads, task.model.heads.num_kv_heads, num_ranks));
  const Outcome alone = train(task, {});
  const Outcome shared = train(task, {.tensor = num_ranks});
  layout_test::expect_close(shared, alone);
  if (task.build.dropout == 0 && task.build.experts.capacity_factor == 0) {
    EXPECT_NEAR(shared.evaluated, shared.loss, layout_test::kTolerance * shared.loss);
  }
  // A token that sees itself alone gives queries and keys no gradient.
  for (const auto& [name, gradient] : alone.gradients) {
    const bool is_zero =
        std::all_of(gradient.begin(), gradient.end(), [](double g) { return g == 0; });
    ASSERT_TRUE(task.documents || task.model.sliding_window == 1 || !is_zero) << name;
  }
}

TEST(TensorParallel, GradientsOfEveryFamilyAreThoseOfOneRank) {
  for (const char* family : {"llama", "mistral", "qwen2", "qwen3", "gpt2"}) {
    for (const int num_ranks : {2, 3, 4}) {
      const std::int64_t heads = num_ranks == 3 ? 3 : 4;
      expect_same(task_of(family, heads, heads), num_ranks);
    }
  }
}

TEST(TensorParallel, GroupedKeysAreCutOrCopied) {
  expect_same(task_of("llama", 4, 2), 2);
  expect_same(task_of("llama", 4, 2), 4);
  expect_same(task_of("llama", 4, 1), 4);
  expect_same(task_of("qwen2", 8, 2), 4);
  expect_same(task_of("qwen3", 6, 3), 6);
}

TEST(TensorParallel, AHeadOfItsOwnIsSharedToo) {
  for (Task task : {task_of("llama", 4, 4), task_of("qwen2", 4, 4)}) {
    task.model.tie_embeddings = false;
    expect_same(task, 2);
    task.model.vocab_size = 4;
    expect_same(task, 4);
  }
}

TEST(TensorParallel, RecomputeGivesTheSame) {
  Task task = task_of("llama", 4, 4);
  task.build.recompute = nn::RecomputeMode::kSelective;
  expect_same(task, 2);
  task.build.recompute = nn::RecomputeMode::kFull;
  expect_same(task, 4);
}

TEST(TensorParallel, DropoutDrawsTheSame) {
  Task task = task_of("llama", 4, 4);
  task.build.dropout = 0.3;
  expect_same(task, 2);
  task = task_of("gpt2", 4, 4);
  task.build = {.recompute = nn::RecomputeMode::kFull, .dropout = 0.1};
  expect_same(task, 4);
}

// More ranks on this axis than hybrid_test draws. ATOLL_LAYOUTS: how many layouts, 100 by default.
TEST(TensorParallel, AnyLayoutThatASeedDrawsGivesTheSame) {
  const char* asked = std::getenv("ATOLL_LAYOUTS");
  const std::int64_t count = asked == nullptr ? 100 : std::stoll(asked);
  for (std::int64_t seed = 0; seed < count; ++seed) {
    Draw draw(static_cast<std::uint64_t>(seed));
    const auto ranks = static_cast<int>(draw.between(2, 8));
    const layout_test::Layout layout = {.tensor = ranks};
    Task task = draw_task(draw, layout);
    task.model.num_layers = draw.between(1, 3);
    task.micro_batches = draw.between(1, 2);
    SCOPED_TRACE(fmt::format("seed {}", seed));
    expect_same(task, ranks);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(TensorParallel, WhatCannotBeSharedIsRefusedByName) {
  const auto build = [](const nn::ModelConfig& config, int size) {
    try {
      nn::build_model(config, {.tensor_size = size});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(build(small_model("llama", 4, 4), 3).find("4 attention heads"), std::string::npos);
  EXPECT_NE(build(small_model("llama", 12, 4), 6).find("4 key-value heads"), std::string::npos);
  nn::ModelConfig few = small_model("llama", 4, 4);
  few.vocab_size = 3;
  EXPECT_NE(build(few, 4).find("3 tokens"), std::string::npos);
}

}  // namespace
}  // namespace atl::parallel
