// Any mix of tensor, pipeline and data-parallel ranks with any ZeRO stage against one rank: the
// same losses, values and gradients, in double, whatever a seed draws.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "atoll/parallel/layout_testing.h"
#include "atoll/parallel/schedules.h"

namespace atl::parallel {
namespace {

using layout_test::Layout;
using layout_test::Outcome;
using layout_test::Task;

nn::ModelConfig small_model(const std::string& family, std::int64_t heads, std::int64_t kv_heads) {
  nn::ModelConfig config;
  config.family = family;
  config.vocab_size = 13;
  config.hidden_size = heads * 4;
  config.num_layers = 3;
  config.heads = {heads, kv_heads, 4};
  config.intermediate_size = 10;
  config.max_positions = 32;
  config.initializer_range = 0.3;  // far from zero: every path carries a gradient
  config.tie_embeddings = true;
  config.qkv_bias = family == "qwen2";
  config.qk_norm = family == "qwen3";
  config.attention_bias = config.mlp_bias = family == "gpt2";
  if (family == "gpt2") config.activation = "gelu_new";
  return config;
}

// Sums of a few hundred terms of order one, in another order.
constexpr double kTolerance = 1e-12;

void expect_close(const Outcome& actual, const Outcome& expected) {
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

void expect_bits(const Outcome& actual, const Outcome& expected) {
  EXPECT_EQ(actual.loss, expected.loss);
  EXPECT_EQ(actual.evaluated, expected.evaluated);
  EXPECT_EQ(actual.grad_norm, expected.grad_norm);
  EXPECT_EQ(actual.values, expected.values);
  for (const auto& [name, gradient] : expected.gradients) {
    EXPECT_EQ(actual.gradients.at(name), gradient) << name;
  }
}

TEST(Hybrid, StagesAndZeroChangeNoBit) {
  Task task = {.model = small_model("llama", 4, 2), .build = {.dropout = 0.1}};
  task.model.tie_embeddings = false;
  for (const int tensor : {1, 2}) {
    const Outcome expected = train(task, {.tensor = tensor, .shard = 2});
    for (const int zero : {0, 1, 2, 3}) {
      for (const char* schedule : {"1f1b", "zb-v"}) {
        const Layout layout = {.tensor = tensor,
                               .pipeline = 2,
                               .shard = 2,
                               .zero = static_cast<Zero>(zero),
                               .schedule = schedule};
        SCOPED_TRACE(layout.name());
        expect_bits(train(task, layout), expected);
      }
    }
  }
}

// Their gradients are summed over the ends of the pipeline before data-parallel ranks sum them, in
// every ZeRO stage.
TEST(Hybrid, TiedEndsHaveTheSameBitsInEveryZeroStage) {
  const Task task = {.model = small_model("llama", 4, 4)};
  for (const char* schedule : {"1f1b", "interleaved"}) {
    Layout layout = {.tensor = 1, .pipeline = 2, .shard = 2, .schedule = schedule};
    const Outcome expected = train(task, layout);
    expect_close(expected, train(task, {}));
    for (const int zero : {1, 2, 3}) {
      layout.zero = static_cast<Zero>(zero);
      SCOPED_TRACE(layout.name());
      expect_bits(train(task, layout), expected);
    }
  }
}

TEST(Hybrid, SeveralCopiesOfAPipelineAreSummed) {
  const Task task = {.model = small_model("qwen2", 4, 2), .micro_batches = 8};
  const Outcome expected = train(task, {});
  for (const int zero : {1, 3}) {
    const Layout layout = {
        .pipeline = 2, .shard = 2, .replicas = 2, .zero = static_cast<Zero>(zero)};
    SCOPED_TRACE(layout.name());
    expect_close(train(task, layout), expected);
  }
}

TEST(Hybrid, RanksShareSequences) {
  for (const char* family : {"llama", "qwen3", "gpt2"}) {
    for (const bool documents : {false, true}) {
      const Task task = {.model = small_model(family, 4, 4), .length = 12, .documents = documents};
      const Outcome expected = train(task, {});
      for (const Layout& layout :
           {Layout{.context = 2}, Layout{.context = 4}, Layout{.tensor = 2, .context = 2},
            Layout{.shard = 2, .context = 2, .zero = Zero::kParameters},
            Layout{.pipeline = 2, .context = 2, .zero = Zero::kGradients}}) {
        SCOPED_TRACE(fmt::format("{} {}", family, layout.name()));
        expect_close(train(task, layout), expected);
      }
    }
  }
}

TEST(Hybrid, SharedSequencesHaveTheSameBitsInEveryZeroStageAndPipeline) {
  Task task = {.model = small_model("llama", 4, 2), .length = 12};
  task.model.tie_embeddings = false;
  task.model.sliding_window = 5;
  const Outcome expected = train(task, {.context = 2});
  for (const int zero : {1, 2, 3}) {
    expect_bits(train(task, {.context = 2, .zero = static_cast<Zero>(zero)}), expected);
    expect_bits(train(task, {.pipeline = 2, .context = 2, .zero = static_cast<Zero>(zero)}),
                expected);
  }
}

// One of what a seed draws.
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

Layout draw_layout(Draw& draw) {
  constexpr int kMostRanks = 8;
  Layout layout;
  do {
    layout.tensor = static_cast<int>(draw.between(1, 4));
    layout.pipeline = static_cast<int>(draw.between(1, 4));
    layout.shard = static_cast<int>(draw.between(1, 4));
    layout.replicas = static_cast<int>(draw.between(1, 2));
    layout.context = static_cast<int>(draw.between(1, 3));
  } while (layout.ranks() > kMostRanks || layout.ranks() == 1);
  layout.zero = static_cast<Zero>(draw.between(layout.replicas > 1 ? 1 : 0, 3));
  layout.bucket_bytes = draw.one_of<std::int64_t>({1, 3000, 1 << 20});
  return layout;
}

Task draw_task(Draw& draw, const Layout& layout) {
  const std::string family = draw.one_of({"llama", "mistral", "qwen2", "qwen3", "gpt2"});
  const std::int64_t heads = layout.tensor * layout.context * draw.between(1, 2);
  std::int64_t kv_heads = heads;
  if (family != "gpt2") {
    do {
      kv_heads = draw.between(1, heads);
    } while (heads % kv_heads != 0 ||
             (kv_heads % layout.tensor != 0 && layout.tensor % kv_heads != 0) ||
             std::max<std::int64_t>(1, kv_heads / layout.tensor) % layout.context != 0);
  }
  Task task = {.model = small_model(family, heads, kv_heads)};
  task.model.intermediate_size = draw.between(layout.tensor, 23);
  task.model.vocab_size = draw.between(std::max(2, layout.tensor), 29);
  task.model.tie_embeddings = draw.between(0, 1) == 1;
  task.batch = draw.between(1, 2);
  const int rows = layout.tensor * layout.context;
  task.length = rows * draw.between(1, 12 / rows);
  task.documents = draw.between(0, 1) == 1;
  task.build.recompute = draw.one_of(
      {nn::RecomputeMode::kNone, nn::RecomputeMode::kSelective, nn::RecomputeMode::kFull});
  task.build.dropout = layout.context == 1 && draw.between(0, 2) == 0 ? 0.2 : 0.0;
  return task;
}

// How the stages are rowed up, and as many micro-batches as that takes.
void draw_schedule(Draw& draw, Layout& layout, Task& task) {
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

// ATOLL_LAYOUTS: how many layouts to draw, 500 by default.
TEST(Hybrid, AnyLayoutThatASeedDrawsGivesTheSame) {
  const char* asked = std::getenv("ATOLL_LAYOUTS");
  const std::int64_t count = asked == nullptr ? 500 : std::stoll(asked);
  for (std::int64_t seed = 0; seed < count; ++seed) {
    Draw draw(static_cast<std::uint64_t>(seed));
    Layout layout = draw_layout(draw);
    Task task = draw_task(draw, layout);
    draw_schedule(draw, layout, task);
    SCOPED_TRACE(fmt::format("seed {}: {}, {}", seed, layout.name(), task.model.family));
    expect_close(train(task, layout), train(task, {}));
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace atl::parallel
