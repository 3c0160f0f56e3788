// Any mix of tensor, pipeline and data-parallel ranks with any ZeRO stage against one rank: the
// same losses, values and gradients, in double, whatever a seed draws.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "atoll/base/error.h"
#include "atoll/nn/models/family.h"
#include "atoll/parallel/draw_testing.h"

namespace atl::parallel {
namespace {

using layout_test::Draw;
using layout_test::expect_bits;
using layout_test::expect_close;
using layout_test::kExperts;
using layout_test::kRing;
using layout_test::Layout;
using layout_test::Outcome;
using layout_test::small_model;
using layout_test::Task;

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
            Layout{.pipeline = 2, .context = 2, .zero = Zero::kGradients},
            Layout{.context = 3, .attention = kRing},
            Layout{.tensor = 2, .context = 2, .attention = kRing, .zero = Zero::kParameters},
            Layout{.pipeline = 2, .context = 2, .attention = kRing, .zero = Zero::kGradients}}) {
        SCOPED_TRACE(fmt::format("{} {}", family, layout.name()));
        expect_close(train(task, layout), expected);
      }
    }
  }
}

// What these have beside Llama's form: norms behind branches, fused matrices, scales, layers
// without rotation, windows with a rotation of their own, caps of scores and logits, layer norms,
// parallel branches.
TEST(Hybrid, FamiliesOfOtherFormsGiveWhatOneRankGives) {
  for (const char* family :
       {"smollm3", "phi3", "granite", "glm4", "gemma3_text", "gemma2", "starcoder2", "gpt_neox"}) {
    nn::ModelConfig model = small_model(family, 4, 2);
    model.embedding_scale = 3;
    model.residual_scale = 0.5;
    model.attention_scale = 0.3;
    model.logits_scale = 0.7;
    if (std::string_view(family).starts_with("gemma")) {
      model.attention_softcap = 1.5;
      model.logits_softcap = 4;
      model.sliding_window = 5;
      for (int i = 0; i < model.num_layers; ++i) model.windowed_layers.push_back(i % 2 == 0);
    }
    // Through config.json, which has of these what the family has.
    const Task task = {.model = nn::parse_config(nn::config_json(model), "a test"), .length = 12};
    const Outcome expected = train(task, {});
    for (const Layout& layout : {Layout{.tensor = 2}, Layout{.pipeline = 2}, Layout{.context = 2},
                                 Layout{.context = 2, .attention = kRing},
                                 Layout{.tensor = 2, .shard = 2, .zero = Zero::kParameters},
                                 Layout{.tensor = 2, .pipeline = 2, .context = 2}}) {
      SCOPED_TRACE(fmt::format("{} {}", family, layout.name()));
      expect_close(train(task, layout), expected);
    }
  }
}

// OLMo's norm of all query heads together needs them on one rank.
TEST(Hybrid, NormsOfAllHeadsGiveWhatOneRankGives) {
  for (const char* family : {"olmo2", "olmo3"}) {
    const Task task = {
        .model = nn::parse_config(nn::config_json(small_model(family, 4, 2)), "a test"),
        .length = 12};
    const Outcome expected = train(task, {});
    for (const Layout& layout :
         {Layout{.pipeline = 2}, Layout{.context = 2}, Layout{.context = 2, .attention = kRing},
          Layout{.shard = 2, .zero = Zero::kParameters},
          Layout{.pipeline = 2, .shard = 2, .context = 2}}) {
      SCOPED_TRACE(fmt::format("{} {}", family, layout.name()));
      expect_close(train(task, layout), expected);
    }
    try {
      nn::build_model(task.model, {.tensor_size = 2});
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("parallel.tp = 2"));
    }
  }
}

TEST(Hybrid, SharedSequencesHaveTheSameBitsInEveryZeroStageAndPipeline) {
  Task task = {.model = small_model("llama", 4, 2), .length = 12};
  task.model.tie_embeddings = false;
  task.model.sliding_window = 5;
  for (const nn::ContextAttention attention : {nn::ContextAttention::kUlysses, kRing}) {
    const Outcome expected = train(task, {.context = 2, .attention = attention});
    for (const int zero : {1, 2, 3}) {
      Layout layout = {.context = 2, .attention = attention, .zero = static_cast<Zero>(zero)};
      expect_bits(train(task, layout), expected);
      layout.pipeline = 2;
      expect_bits(train(task, layout), expected);
    }
  }
}

// Heads that ranks cannot share evenly go round a ring, and with them dropout.
TEST(Hybrid, RanksOfAnyNumberShareSequences) {
  for (const double dropout : {0.0, 0.2}) {
    const Task task = {
        .model = small_model("llama", 4, 2), .build = {.dropout = dropout}, .length = 24};
    const Outcome expected = train(task, {});
    for (const int context : {3, 4, 6}) {
      SCOPED_TRACE(context);
      expect_close(train(task, {.context = context}), expected);
    }
  }
}

TEST(Hybrid, RanksShareExperts) {
  for (const char* family : {"mixtral", "qwen3_moe"}) {
    for (const double capacity : {0.0, 0.8}) {
      Task task = {.model = small_model(family, 4, 2), .build = {.experts = kExperts}};
      task.micro_batches = 8;
      task.build.experts.capacity_factor = capacity;
      const Outcome expected = train(task, {});
      for (const Layout& layout :
           {Layout{.expert = 2}, Layout{.expert = 4}, Layout{.pipeline = 2, .expert = 2},
            Layout{.shard = 2, .expert = 2, .zero = Zero::kParameters},
            Layout{.replicas = 2, .expert = 2, .zero = Zero::kOptimizer},
            Layout{.pipeline = 2, .shard = 2, .expert = 2, .zero = Zero::kGradients}}) {
        SCOPED_TRACE(fmt::format("{} {}, capacity {}", family, layout.name(), capacity));
        expect_close(train(task, layout), expected);
      }
    }
  }
}

// Each rank has a share of every expert, and all choose alike.
TEST(Hybrid, RanksShareTheProductsOfExperts) {
  for (const char* family : {"mixtral", "qwen3_moe"}) {
    for (const double capacity : {0.0, 0.8}) {
      Task task = {.model = small_model(family, 4, 2), .build = {.experts = kExperts}};
      task.model.experts.intermediate_size = 7;
      task.build.experts.capacity_factor = capacity;
      const Outcome expected = train(task, {});
      for (const Layout& layout : {Layout{.tensor = 2}, Layout{.tensor = 4},
                                   Layout{.tensor = 2, .shard = 2, .zero = Zero::kParameters},
                                   Layout{.tensor = 2, .pipeline = 2, .zero = Zero::kGradients}}) {
        SCOPED_TRACE(fmt::format("{} {}, capacity {}", family, layout.name(), capacity));
        expect_close(train(task, layout), expected);
      }
      task.build.recompute = nn::RecomputeMode::kFull;
      expect_close(train(task, {.tensor = 2}), expected);
    }
  }
}

// Their load is balanced over whole sequences.
TEST(Hybrid, RanksShareTheSequencesOfModelsWithExperts) {
  for (const char* family : {"mixtral", "qwen3_moe"}) {
    const Task task = {.model = small_model(family, 4, 4),
                       .build = {.experts = kExperts},
                       .length = 12,
                       .documents = true};
    const Outcome expected = train(task, {});
    for (const Layout& layout : {Layout{.context = 2}, Layout{.context = 3, .attention = kRing},
                                 Layout{.tensor = 2, .context = 2, .attention = kRing},
                                 Layout{.shard = 2, .context = 2, .zero = Zero::kParameters},
                                 Layout{.pipeline = 2, .context = 2, .schedule = "zb-h1"}}) {
      SCOPED_TRACE(fmt::format("{} {}", family, layout.name()));
      expect_close(train(task, layout), expected);
    }
  }
}

// A rank has a share of some experts. With four ranks to a product, two have the same keys.
TEST(Hybrid, RanksShareExpertsAndTheirProducts) {
  for (const char* family : {"mixtral", "qwen3_moe"}) {
    for (const double capacity : {0.0, 0.8}) {
      Task task = {.model = small_model(family, 4, 2), .build = {.experts = kExperts}};
      task.model.experts.intermediate_size = 7;
      task.micro_batches = 8;
      task.build.experts.capacity_factor = capacity;
      const Outcome expected = train(task, {});
      for (const Layout& layout :
           {Layout{.tensor = 2, .expert = 2}, Layout{.tensor = 4, .expert = 2},
            Layout{.tensor = 2, .expert = 4},
            Layout{.tensor = 2, .shard = 2, .expert = 2, .zero = Zero::kParameters},
            Layout{.tensor = 2, .replicas = 2, .expert = 2, .zero = Zero::kOptimizer},
            Layout{.tensor = 2, .pipeline = 2, .expert = 2, .schedule = "zb-h1"}}) {
        SCOPED_TRACE(fmt::format("{} {}, capacity {}", family, layout.name(), capacity));
        expect_close(train(task, layout), expected);
      }
      task.build.recompute = nn::RecomputeMode::kFull;
      expect_close(train(task, {.tensor = 2, .expert = 2}), expected);
    }
  }
}

TEST(Hybrid, RanksShareExpertsAndSequences) {
  for (const char* family : {"mixtral", "qwen3_moe"}) {
    const Task task = {.model = small_model(family, 4, 4),
                       .build = {.experts = kExperts},
                       .length = 12,
                       .micro_batches = 8,
                       .documents = true};
    const Outcome expected = train(task, {});
    for (const Layout& layout :
         {Layout{.context = 2, .expert = 2}, Layout{.context = 2, .attention = kRing, .expert = 4},
          Layout{.shard = 2, .context = 2, .expert = 2, .zero = Zero::kParameters},
          Layout{.replicas = 2, .context = 2, .expert = 2, .zero = Zero::kGradients},
          Layout{.pipeline = 2, .context = 2, .expert = 2, .schedule = "zb-v"},
          Layout{.tensor = 2, .context = 2, .attention = kRing, .expert = 2},
          Layout{.tensor = 2, .context = 2, .expert = 2, .zero = Zero::kParameters}}) {
      SCOPED_TRACE(fmt::format("{} {}", family, layout.name()));
      expect_close(train(task, layout), expected);
    }
  }
}

TEST(Hybrid, SharedExpertsAndProductsHaveTheSameBitsInEveryZeroStageAndPipeline) {
  Task task = {.model = small_model("qwen3_moe", 4, 2), .build = {.experts = kExperts}};
  task.model.tie_embeddings = false;
  task.micro_batches = 8;
  const Outcome expected = train(task, {.tensor = 2, .shard = 2, .expert = 2});
  const Outcome alone = train(task, {.tensor = 2, .expert = 2});
  for (const int zero : {1, 2, 3}) {
    const auto stage = static_cast<Zero>(zero);
    expect_bits(train(task, {.tensor = 2, .shard = 2, .expert = 2, .zero = stage}), expected);
  }
  for (const char* schedule : {"1f1b", "zb-v"}) {
    expect_bits(train(task, {.tensor = 2, .pipeline = 2, .expert = 2, .schedule = schedule}),
                alone);
  }
  task.build.recompute = nn::RecomputeMode::kFull;
  expect_bits(train(task, {.tensor = 2, .shard = 2, .expert = 2}), expected);
}

TEST(Hybrid, SharedExpertsHaveTheSameBitsInEveryZeroStageAndPipeline) {
  Task task = {.model = small_model("qwen3_moe", 4, 2), .build = {.experts = kExperts}};
  task.model.tie_embeddings = false;
  task.micro_batches = 8;
  const Outcome expected = train(task, {.shard = 2, .expert = 2});
  for (const int zero : {1, 2, 3}) {
    for (const char* schedule : {"1f1b", "zb-v"}) {
      const auto stage = static_cast<Zero>(zero);
      expect_bits(train(task, {.shard = 2, .expert = 2, .zero = stage}), expected);
      expect_bits(
          train(task,
                {.pipeline = 2, .shard = 2, .expert = 2, .zero = stage, .schedule = schedule}),
          expected);
    }
  }
  task.build.recompute = nn::RecomputeMode::kFull;
  expect_bits(train(task, {.shard = 2, .expert = 2}), expected);
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
