#include "atoll/nn/lora.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/nn/adapters/lora_whole.h"
#include "atoll/nn/models/family.h"
#include "atoll/nn/models/parts.h"
#include "atoll/nn/testing.h"

namespace atl::nn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelConfig tiny_llama() {
  ModelConfig config;
  config.family = "llama";
  config.vocab_size = 31;
  config.hidden_size = 12;
  config.num_layers = 2;
  config.heads = {.num_heads = 2, .num_kv_heads = 1, .head_dim = 6};
  config.intermediate_size = 20;
  config.max_positions = 16;
  config.activation = "silu";
  return config;
}

std::string error_of(const LoraOptions& options) {
  const auto model = build_model(tiny_llama(), {});
  try {
    add_lora(*model, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

class Names final : public ParamVisitor {
 public:
  void param(Param& param) override { (param.frozen ? frozen : trained).push_back(&param); }
  std::vector<Param*> frozen, trained;
};

// q and v of a fused weight whose k has none: blocks with a gap between them.
Linear adapted_linear(bool frozen) {
  Param weight;
  weight.name = "qkv.weight";
  weight.spec = {Dtype::kF64, {7, 5}};
  weight.init = Init::normal(1);
  weight.frozen = frozen;
  Param bias;
  bias.name = "qkv.bias";
  bias.spec = {Dtype::kF64, {7}};
  bias.frozen = frozen;
  Linear linear(std::move(weight), std::move(bias));
  Param a;
  a.name = "a";
  a.spec = {Dtype::kF64, {4, 5}};
  Param b;
  b.name = "b";
  b.spec = {Dtype::kF64, {5, 2}};
  linear.add_adapter(std::move(a), std::move(b), {{0, 3}, {5, 2}}, 0.7);
  return linear;
}

TEST(Lora, GradientsMatchFiniteDifferences) {
  for (const bool frozen : {true, false}) {
    Linear linear = adapted_linear(frozen);
    LayerBench bench(linear, {Dtype::kF64, {2, 3, 5}});
    std::string where;
    EXPECT_LT(bench.worst_error(&where), 1e-7) << where;
  }
}

// The draws are those of seed and step, so that a loss is a function of x and the parameters.
TEST(Lora, GradientsMatchFiniteDifferencesUnderDropout) {
  Linear linear = adapted_linear(true);
  linear.drop_adapter_input(0.4, 1 << 15);
  LayerBench bench(linear, {Dtype::kF64, {2, 3, 5}});
  bench.run.run.training = true;
  std::string where;
  EXPECT_LT(bench.worst_error(&where), 1e-7) << where;
}

TEST(Lora, DropsInTrainingAlone) {
  Linear linear = adapted_linear(true);
  LayerBench bench(linear, {Dtype::kF64, {2, 3, 5}});
  const double plain = bench.loss();
  linear.drop_adapter_input(0.4, 1 << 15);
  bench.run.run.training = false;
  EXPECT_EQ(bench.loss(), plain);
  bench.run.run.training = true;
  EXPECT_NE(bench.loss(), plain);
}

TEST(Lora, IsTheLinearWithTheMergedWeight) {
  Linear adapted = adapted_linear(true);
  LayerBench bench(adapted, {Dtype::kF64, {1, 3, 5}});
  adapted.forward(bench.run, bench.pass());
  const double* w = bench.params[0]->value.data<double>();
  const double* shift = bench.params[1]->value.data<double>();
  const double* a = bench.params[2]->value.data<double>();
  const double* b = bench.params[3]->value.data<double>();
  std::vector<double> merged(w, w + 35);
  const auto merge = [&](int row, int b_row, int block) {
    for (int i = 0; i < 5; ++i) {
      for (int j = 0; j < 2; ++j) {
        merged[row * 5 + i] += 0.7 * b[b_row * 2 + j] * a[(block * 2 + j) * 5 + i];
      }
    }
  };
  for (int i = 0; i < 3; ++i) merge(i, i, 0);
  for (int i = 0; i < 2; ++i) merge(5 + i, 3 + i, 1);
  for (int t = 0; t < 3; ++t) {
    for (int row = 0; row < 7; ++row) {
      double sum = shift[row];
      for (int i = 0; i < 5; ++i) sum += bench.x.data<double>()[t * 5 + i] * merged[row * 5 + i];
      EXPECT_NEAR(bench.y.data<double>()[t * 7 + row], sum, 1e-12) << t << ", " << row;
    }
  }
}

TEST(Lora, TrainsTheAdaptersAndNothingElse) {
  const auto model = build_model(tiny_llama(), {});
  add_lora(*model, {.rank = 4, .alpha = 8, .targets = {"q_proj", "v_proj"}});
  Names names;
  model->visit(names);
  ASSERT_EQ(names.trained.size(), 4U);  // A and B of two fused weights
  const Param& a = *names.trained[0];
  const Param& b = *names.trained[1];
  EXPECT_EQ(a.spec.shape, (Shape{8, 12}));
  EXPECT_EQ(b.spec.shape, (Shape{18, 4}));
  ASSERT_EQ(a.files.size(), 2U);
  EXPECT_EQ(a.files[1].name, "base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight");
  EXPECT_EQ(a.files[1].row_begin, 4);
  EXPECT_EQ(b.files[1].name, "base_model.model.model.layers.0.self_attn.v_proj.lora_B.weight");
  EXPECT_EQ(b.files[1].row_begin, 12);
  EXPECT_EQ(b.files[1].rows, 6);
  EXPECT_EQ(names.frozen.size(), 1U + 2 * 6 + 1 + 1);
}

TEST(Lora, AllLinearLeavesOutTheHead) {
  const auto model = build_model(tiny_llama(), {});
  add_lora(*model, {.targets = {"all-linear"}});
  Names names;
  model->visit(names);
  EXPECT_EQ(names.trained.size(), 2U * 4 * 2);
  EXPECT_THAT(lora_modules(*model), ElementsAre("down_proj", "gate_proj", "k_proj", "o_proj",
                                                "q_proj", "up_proj", "v_proj"));
}

TEST(Lora, APatternMatchesTheWholeNameOfAModule) {
  const auto model = build_model(tiny_llama(), {});
  add_lora(*model, {.target_pattern = R"(model\.layers\.1\..*\.(q|v)_proj)"});
  Names names;
  model->visit(names);
  ASSERT_EQ(names.trained.size(), 2U);
  EXPECT_EQ(names.trained[0]->files[0].name,
            "base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight");
  EXPECT_THAT(error_of({.target_pattern = "q_proj"}), HasSubstr("must match the whole name"));
}

TEST(Lora, SavedModulesAreTrainedWhole) {
  const auto model = build_model(tiny_llama(), {});
  add_lora(*model, {.targets = {"q_proj"}, .modules_to_save = {"model.norm", "0.mlp"}});
  Names names;
  model->visit(names);
  std::vector<std::string> whole;
  for (const Param* param : names.trained) {
    if (!is_lora_factor(*param)) whole.push_back(param->files.front().name);
  }
  EXPECT_THAT(whole, ElementsAre("base_model.model.model.layers.0.mlp.gate_proj.weight",
                                 "base_model.model.model.layers.0.mlp.down_proj.weight",
                                 "base_model.model.model.norm.weight"));
}

TEST(Lora, SavedModulesThatCannotBeAreRefused) {
  EXPECT_THAT(error_of({.targets = {"o_proj"}, .modules_to_save = {"score"}}),
              HasSubstr("\"score\""));
  EXPECT_THAT(error_of({.targets = {"o_proj"}, .modules_to_save = {"q_proj"}}),
              HasSubstr("together with"));
}

// PEFT reads a table that stays tied (ensure_weight_tying) under both names.
TEST(Lora, ASavedEmbeddingStaysTheHeads) {
  ModelConfig tied = tiny_llama();
  tied.tie_embeddings = true;
  const auto model = build_model(tied, {});
  add_lora(*model, {.targets = {"o_proj"}});
  EXPECT_FALSE(saves_tied_embedding(*model));
  const auto saved = build_model(tied, {});
  add_lora(*saved, {.targets = {"o_proj"}, .modules_to_save = {"embed_tokens"}});
  EXPECT_TRUE(saves_tied_embedding(*saved));
  Names names;
  saved->visit(names);
  const auto table =
      std::ranges::find_if(names.trained, [](const Param* param) { return param->is_embedding; });
  ASSERT_NE(table, names.trained.end());
  ASSERT_EQ((*table)->files.size(), 2U);
  EXPECT_EQ((*table)->files[0].name, "base_model.model.model.embed_tokens.weight");
  EXPECT_EQ((*table)->files[1].name, "base_model.model.lm_head.weight");
}

// q and v of one fused weight: what has a rank or a scale of its own has factors of its own.
TEST(Lora, PatternsGiveModulesTheirOwnFactors) {
  const auto model = build_model(tiny_llama(), {});
  add_lora(*model, {.rank = 4,
                    .targets = {"q_proj", "k_proj", "v_proj"},
                    .ranks = {{"v_proj", 2}},
                    .alphas = {{"1.self_attn.k_proj", 3}}});
  Names names;
  model->visit(names);
  std::vector<Shape> shapes;
  for (const Param* param : names.trained) shapes.push_back(param->spec.shape);
  EXPECT_THAT(shapes, ElementsAre(Shape{8, 12}, Shape{18, 4}, Shape{2, 12}, Shape{6, 2},  // qk, v
                                  Shape{4, 12}, Shape{12, 4}, Shape{4, 12}, Shape{6, 4},  // q, k
                                  Shape{2, 12}, Shape{6, 2}));                            // v
  EXPECT_EQ(names.trained[2]->files[0].name,
            "base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight");
}

TEST(Lora, AnEmbeddingHasFactorsAsPeftKeepsThem) {
  const auto model = build_model(tiny_llama(), {});
  add_lora(*model, {.rank = 4, .targets = {"embed_tokens"}});
  Names names;
  model->visit(names);
  ASSERT_EQ(names.trained.size(), 2U);
  EXPECT_EQ(names.trained[0]->spec.shape, (Shape{31, 4}));
  EXPECT_EQ(names.trained[0]->files[0].name,
            "base_model.model.model.embed_tokens.lora_embedding_A");
  EXPECT_TRUE(names.trained[0]->files[0].transposed);
  EXPECT_EQ(names.trained[1]->spec.shape, (Shape{12, 4}));
  EXPECT_EQ(names.frozen.size(), 1U + 2 * 6 + 1 + 1);
  EXPECT_THAT(error_of({.targets = {"embed_tokens"}, .use_dora = true}), HasSubstr("lora.dora"));
}

TEST(Lora, RowsOfDoraHaveLengths) {
  const auto model = build_model(tiny_llama(), {});
  add_lora(*model, {.rank = 4, .targets = {"q_proj", "v_proj"}, .use_dora = true});
  Names names;
  model->visit(names);
  ASSERT_EQ(names.trained.size(), 6U);
  const Param& lengths = *names.trained[2];
  EXPECT_EQ(lengths.spec.shape, (Shape{18}));
  EXPECT_FALSE(lengths.decay);
  EXPECT_TRUE(is_lora_factor(lengths));
  EXPECT_EQ(weight_of_lengths(lengths.files[1]), "model.layers.0.self_attn.v_proj.weight");
  EXPECT_EQ(weight_of_lengths(names.trained[0]->files[0]), "");
}

TEST(Lora, BiasesAreThoseOfTheModelOrOfAdaptedModules) {
  ModelConfig config = tiny_llama();
  config.attention_bias = true;
  const auto biases = [&](const LoraOptions& options) {
    const auto model = build_model(config, {});
    add_lora(*model, options);
    Names names;
    model->visit(names);
    std::vector<std::string> found;
    for (const Param* param : names.trained) {
      if (!is_lora_factor(*param)) found.push_back(param->files.back().name);
    }
    return found;
  };
  const std::string at = "base_model.model.model.layers.";
  EXPECT_THAT(biases({.targets = {"o_proj"}, .bias = LoraBias::kAdapted}),
              ElementsAre(at + "0.self_attn.o_proj.base_layer.bias",
                          at + "1.self_attn.o_proj.base_layer.bias"));
  EXPECT_THAT(
      biases({.targets = {"o_proj"}, .bias = LoraBias::kAll}),
      ElementsAre(at + "0.self_attn.v_proj.bias", at + "0.self_attn.o_proj.base_layer.bias",
                  at + "1.self_attn.v_proj.bias", at + "1.self_attn.o_proj.base_layer.bias"));
  EXPECT_THAT(error_of({.targets = {"o_proj"}, .bias = LoraBias::kAll}),
              HasSubstr("this model has no biases"));
  try {
    biases({.targets = {"q_proj"}, .bias = LoraBias::kAdapted});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("lora.bias=all"));
  }
}

// A head with a weight of its own, and one that shares the embedding's, which stays as it is.
TEST(Lora, AHeadHasFactorsOfItsOwn) {
  for (const bool is_tied : {false, true}) {
    ModelConfig config = tiny_llama();
    config.tie_embeddings = is_tied;
    const auto model = build_model(config, {});
    add_lora(*model, {.rank = 3, .targets = {"lm_head"}});
    Names names;
    model->visit(names);
    ASSERT_EQ(names.trained.size(), 2U);
    EXPECT_EQ(names.trained[0]->files.front().name, "base_model.model.lm_head.lora_A.weight");
    EXPECT_EQ(names.trained[1]->files.front().name, "base_model.model.lm_head.lora_B.weight");
    EXPECT_EQ(names.trained[1]->spec.shape, Shape({31, 3}));
  }
  EXPECT_THAT(error_of({.targets = {"lm_head"}, .dropout = 0.1}), HasSubstr("lora.dropout"));
  EXPECT_THAT(error_of({.targets = {"lm_head"}, .use_dora = true}), HasSubstr("lora.dora"));
}

TEST(Lora, ATargetThatMatchesNothingIsNamed) {
  EXPECT_THAT(error_of({.targets = {"q_proj", "query"}}),
              ::testing::AllOf(HasSubstr("\"query\""), HasSubstr("q_proj, up_proj, v_proj")));
  EXPECT_THAT(error_of({.targets = {}}), HasSubstr("without targets"));
  // A part of a name is not the name.
  EXPECT_THAT(error_of({.targets = {"proj"}}), HasSubstr("\"proj\""));
}

TEST(Lora, ScaleIsAlphaOverRankOrItsRoot) {
  EXPECT_EQ((LoraOptions{.rank = 16, .alpha = 8}).scale(), 0.5);
  EXPECT_EQ((LoraOptions{.rank = 16, .alpha = 8, .rank_stabilized = true}).scale(), 2.0);
}

bool adapts(const LoraOptions& options, const std::string& module) {
  return LoraRules(options, "here").of_module(module, /*in_all_linear=*/true).has_value();
}

TEST(LoraRules, ANameInAListIsTheEndOfAModules) {
  const LoraOptions options = {.targets = {"q_proj", "mlp.up"}};
  EXPECT_TRUE(adapts(options, "q_proj"));
  EXPECT_TRUE(adapts(options, "model.layers.0.self_attn.q_proj"));
  EXPECT_FALSE(adapts(options, "model.layers.0.self_attn.my_q_proj"));
  EXPECT_TRUE(adapts(options, "model.layers.0.mlp.up"));
  EXPECT_FALSE(adapts(options, "model.layers.0.up"));
}

TEST(LoraRules, APatternMatchesTheWholeName) {
  const LoraOptions options = {.target_pattern = R"(.*\.(0|12)\..*proj)"};
  EXPECT_TRUE(adapts(options, "model.layers.12.self_attn.q_proj"));
  EXPECT_FALSE(adapts(options, "model.layers.1.self_attn.q_proj"));
  EXPECT_FALSE(adapts({.target_pattern = "q_proj"}, "model.layers.1.self_attn.q_proj"));
}

TEST(LoraRules, LayersAreCountedByTheFirstNumber) {
  LoraOptions options = {.targets = {"up", "model.layers.7.up"}, .layers = {1}};
  EXPECT_TRUE(adapts(options, "model.layers.1.experts.0.up"));
  EXPECT_FALSE(adapts(options, "model.layers.0.experts.1.up"));
  EXPECT_FALSE(adapts(options, "model.up"));
  EXPECT_TRUE(adapts(options, "model.layers.7.up"));  // a whole name counts in every block
  options.layer_patterns = {"h", "experts"};
  EXPECT_TRUE(adapts(options, "model.layers.0.experts.1.up"));
  EXPECT_FALSE(adapts(options, "model.layers.1.up"));
}

TEST(LoraRules, WhatIsExcludedOrSavedIsNotAdapted) {
  const LoraOptions options = {
      .targets = {"all-linear"}, .excluded = {"q_proj"}, .modules_to_save = {"mlp"}};
  EXPECT_FALSE(adapts(options, "layers.0.q_proj"));
  EXPECT_FALSE(adapts(options, "layers.0.mlp.up"));
  EXPECT_TRUE(adapts(options, "layers.0.k_proj"));
  EXPECT_TRUE(adapts(options, "layers.0.my_mlp.up"));
  EXPECT_FALSE(adapts({.targets = {"q"}, .excluded_pattern = ".*\\.q"}, "layers.0.q"));
}

TEST(LoraRules, SavedModulesAreThoseWhoseNamesEndSoAndAllInThem) {
  const LoraRules rules({.modules_to_save = {"norm", "1.mlp"}}, "here");
  EXPECT_TRUE(rules.saves("model.layers.0.input_layernorm"));
  EXPECT_TRUE(rules.saves("model.layers.1.mlp.up"));
  EXPECT_TRUE(rules.saves("model.layers.11.mlp.up"));  // as PEFT: no dot is needed before
  EXPECT_FALSE(rules.saves("model.layers.0.mlp.up"));
}

TEST(LoraRules, TheFirstPatternThatMatchesGivesTheRank) {
  const LoraRules rules({.rank = 8,
                         .alpha = 16,
                         .targets = {"q", "k", "v"},
                         .ranks = {{"0.q", 2}, {"q", 4}, {"k|v", 1}},
                         .alphas = {{"q", 1}}},
                        "here");
  const auto shape = [&](const char* module) { return *rules.of_module(module, true); };
  EXPECT_EQ(shape("layers.0.q").rank, 2);
  EXPECT_EQ(shape("layers.1.q").rank, 4);
  EXPECT_EQ(shape("layers.1.q").scale, 0.25);
  EXPECT_EQ(shape("layers.1.v").rank, 1);
  EXPECT_EQ(shape("layers.1.v").scale, 16);
}

TEST(LoraRules, AnInvalidPatternIsNamed) {
  try {
    adapts({.target_pattern = "a("}, "a");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("here"));
    EXPECT_THAT(error.what(), HasSubstr("a("));
  }
}

}  // namespace
}  // namespace atl::nn
