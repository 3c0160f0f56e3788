#pragma once

// Small models, and layouts and tasks that a seed draws, for tests that compare layouts with one
// rank.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "atoll/base/rng.h"
#include "atoll/parallel/layout/layout_testing.h"
#include "atoll/parallel/schedule/schedules.h"

namespace atl::parallel::layout_test {

/// Of odd sizes, and far from zero, so that every path carries a gradient.
inline nn::ModelConfig small_model(const std::string& family, std::int64_t heads,
                                   std::int64_t kv_heads) {
  nn::ModelConfig config;
  config.family = family;
  config.vocab_size = 13;
  config.hidden_size = heads * 4;
  config.num_layers = 3;
  config.heads = {heads, kv_heads, 4};
  config.intermediate_size = 10;
  config.max_positions = 32;
  config.initializer_range = 0.3;
  config.tie_embeddings = true;
  config.qkv_bias = family == "qwen2";
  config.qk_norm = family == "qwen3";
  config.attention_bias = config.mlp_bias = family == "gpt2" || family == "gpt_neox";
  if (family == "gpt2") config.activation = "gelu_new";
  if (family == "mixtral" || family == "qwen3_moe") {
    config.qk_norm = family == "qwen3_moe";
    config.experts = {.num_experts = 4, .top_k = 2, .intermediate_size = 6};
  }
  return config;
}

inline constexpr nn::ContextAttention kRing = nn::ContextAttention::kRing;

/// The losses of the router, which go by micro-batches: the same on any number of ranks.
inline constexpr nn::ExpertOptions kExperts = {.balance_loss = 0.05, .z_loss = 0.01};

/// Sums of a few hundred terms of order one, in another order.
inline constexpr double kTolerance = 1e-12;

/// The same up to the order of sums.
inline void expect_close(const Outcome& actual, const Outcome& expected) {
  EXPECT_NEAR(actual.loss, expected.loss, kTolerance * expected.loss);
  EXPECT_NEAR(actual.evaluated, expected.evaluated, kTolerance * expected.evaluated);
  EXPECT_NEAR(actual.grad_norm, expected.grad_norm, kTolerance * expected.grad_norm);
  EXPECT_EQ(actual.values, expected.values);
  ASSERT_EQ(actual.gradients.size(), expected.gradients.size());
  for (const auto& [name, gradient] : expected.gradients) {
    const std::vector<double>& found = actual.gradients.at(name);
    ASSERT_EQ(found.size(), gradient.size()) << name;
    double largest = 1;
    for (const double g : gradient) largest = std::max(largest, std::abs(g));
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      ASSERT_NEAR(found[i], gradient[i], kTolerance * largest) << name << " " << i;
    }
  }
}

/// The same bits.
inline void expect_bits(const Outcome& actual, const Outcome& expected) {
  EXPECT_EQ(actual.loss, expected.loss);
  EXPECT_EQ(actual.evaluated, expected.evaluated);
  EXPECT_EQ(actual.grad_norm, expected.grad_norm);
  EXPECT_EQ(actual.values, expected.values);
  for (const auto& [name, gradient] : expected.gradients) {
    EXPECT_EQ(actual.gradients.at(name), gradient) << name;
  }
}

/// One after the other of what a seed draws.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : stream_(seed, RngPurpose::kSynthetic) {}
  std::int64_t between(std::int64_t low, std::int64_t high) {
    const auto width = static_cast<std::uint64_t>(high - low + 1);
    return low + static_cast<std::int64_t>(stream_.word(next_++) % width);
  }
  template <typename T>
  T one_of(std::initializer_list<T> of) {
    return *(of.begin() + between(0, static_cast<std::int64_t>(of.size()) - 1));
  }

 private:
  RngStream stream_;
  std::uint64_t next_ = 0;
};

/// Two to eight ranks on any axes that go together; how stages are rowed up is left to
/// draw_schedule.
inline Layout draw_layout(Draw& draw) {
  constexpr int kMostRanks = 8;
  Layout layout;
  do {
    layout.tensor = static_cast<int>(draw.between(1, 4));
    layout.pipeline = static_cast<int>(draw.between(1, 4));
    layout.shard = static_cast<int>(draw.between(1, 4));
    layout.replicas = static_cast<int>(draw.between(1, 2));
    layout.context = static_cast<int>(draw.between(1, 3));
    layout.expert = draw.between(0, 2) == 0 ? static_cast<int>(draw.between(1, 4)) : 1;
  } while (layout.ranks() > kMostRanks || layout.ranks() == 1);
  layout.attention = draw.one_of({nn::ContextAttention::kUlysses, kRing});
  layout.zero = static_cast<Zero>(draw.between(layout.replicas > 1 ? 1 : 0, 3));
  layout.bucket_bytes = draw.one_of<std::int64_t>({1, 3000, 1 << 20});
  return layout;
}

/// What such a layout trains.
inline Task draw_task(Draw& draw, const Layout& layout) {
  const bool has_experts = layout.expert > 1 || draw.between(0, 3) == 0;
  const std::string family = has_experts
                                 ? draw.one_of({"mixtral", "qwen3_moe"})
                                 : draw.one_of({"llama", "mistral", "qwen2", "qwen3", "gpt2"});
  // Ranks that share sequences share heads too, unless keys go round a ring.
  const int sharing = layout.attention == kRing ? 1 : layout.context;
  const std::int64_t heads = layout.tensor * sharing * draw.between(1, 2);
  std::int64_t kv_heads = heads;
  if (family != "gpt2") {
    do {
      kv_heads = draw.between(1, heads);
    } while (heads % kv_heads != 0 ||
             (kv_heads % layout.tensor != 0 && layout.tensor % kv_heads != 0) ||
             std::max<std::int64_t>(1, kv_heads / layout.tensor) % sharing != 0);
  }
  Task task = {.model = small_model(family, heads, kv_heads)};
  task.model.intermediate_size = draw.between(layout.tensor, 23);
  task.model.vocab_size = draw.between(std::max(2, layout.tensor), 29);
  task.model.tie_embeddings = draw.between(0, 1) == 1;
  task.batch = draw.between(1, 2);
  const int parts = layout.attention == kRing && layout.context > 1 ? 2 : 1;
  const int rows = layout.context * std::lcm(layout.tensor, parts);
  task.length = rows * draw.between(1, 12 / rows);
  if (family != "gpt2" && draw.between(0, 1) == 1) task.model.sliding_window = draw.between(1, 12);
  task.documents = draw.between(0, 1) == 1;
  task.build.recompute = draw.one_of(
      {nn::RecomputeMode::kNone, nn::RecomputeMode::kSelective, nn::RecomputeMode::kFull});
  task.build.dropout = draw.between(0, 2) == 0 ? 0.2 : 0.0;
  if (!has_experts && draw.between(0, 5) == 0) {
    task.lora = {.rank = draw.between(1, 3), .targets = {"all-linear"}};
  }
  if (has_experts) {
    nn::ExpertShape& experts = task.model.experts;
    experts.num_experts = layout.expert * draw.between(1, 3);
    experts.top_k = draw.between(1, std::min<std::int64_t>(3, experts.num_experts));
    experts.intermediate_size = draw.between(layout.tensor, 9);
    experts.normalize = draw.between(0, 1) == 1;
    task.build.experts = kExperts;
    if (layout.context == 1) task.build.experts.capacity_factor = draw.one_of({0.0, 0.7, 1.3});
  }
  return task;
}

/// How the stages are rowed up, and as many micro-batches as that takes.
inline void draw_schedule(Draw& draw, Layout& layout, Task& task) {
  const auto schedules = pipeline_schedules();
  const auto at = draw.between(0, std::ssize(schedules) - 1);
  const PipelineSchedule& schedule = schedules[static_cast<std::size_t>(at)];
  layout.schedule = schedule.name;
  layout.chunks = schedule.min_chunks;
  const std::int64_t least = layout.pipeline * std::max(1, layout.chunks);
  task.model.num_layers = draw.between(std::max<std::int64_t>(1, least - 3), least + 1);
  const std::int64_t rounds =
      layout.pipeline == 1 ? draw.between(1, 3) : layout.pipeline * draw.between(1, 2);
  task.micro_batches = layout.data() * rounds;
}

}  // namespace atl::parallel::layout_test
