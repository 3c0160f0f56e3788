// Ranks that share a model generate what one rank alone does.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/base/hash.h"
#include "atoll/base/rng.h"
#include "atoll/comm/world.h"
#include "atoll/ops/testing.h"
#include "atoll/serve/inference_engine.h"

namespace atl::serve {
namespace {

constexpr std::int64_t kVocab = 61;
constexpr std::int64_t kPositions = 150;

nn::ModelConfig model(const std::string& family) {
  nn::ModelConfig config;
  config.family = family;
  config.vocab_size = kVocab;
  config.hidden_size = 24;
  config.num_layers = 3;
  config.heads = {.num_heads = 4, .num_kv_heads = 2, .head_dim = 6};
  config.intermediate_size = 42;
  config.max_positions = kPositions;
  if (family == "gpt2") {
    config.heads.num_kv_heads = 4;
    config.activation = "gelu_new";
    config.attention_bias = config.mlp_bias = config.tie_embeddings = true;
  }
  if (family == "mixtral") {
    config.experts = {.num_experts = 4, .top_k = 2, .intermediate_size = 42};
  }
  return config;
}

// Any whole parameter, the same on all ranks: a function of its name and of the element.
void fill(parallel::ParamStore& store) {
  store.fill([](const nn::Param& param, const Tensor& whole) {
    const std::string& name = param.name;
    const RngStream stream(hash_bytes(name.data(), name.size()).low, RngPurpose::kSynthetic);
    const float base = param.init.kind == nn::Init::Kind::kOne ? 1.0F : 0.0F;
    for (std::int64_t i = 0; i < whole.num_elements(); ++i) {
      whole.data<float>()[i] = base + 0.6F * stream.uniform(static_cast<std::uint64_t>(i)) - 0.3F;
    }
  });
}

// What one rank, or the first of several, has made.
struct Made {
  std::vector<float> logits;
  std::vector<std::int32_t> greedy, sampled;
  std::vector<double> scores;
  std::vector<std::size_t> cache_bytes;  // of each rank
};

struct Case {
  std::string name;
  std::string family;
  ModelLayout layout;
  Weights weights = Weights::kF32;
};

std::vector<std::int32_t> generate(InferenceEngine& engine, std::span<const std::int32_t> prompt,
                                   std::int64_t count, double temperature) {
  engine.reset();
  TokenSampler sampler({.temperature = temperature, .seed = 3});
  std::vector<std::int32_t> made;
  engine.generate(prompt, count, sampler, -1, [&](std::int32_t token) {
    made.push_back(token);
    return true;
  });
  return made;
}

void use(InferenceEngine& engine, Made& made) {
  const test::OwnedTensor<std::int32_t> tokens = test::random_tokens({1, 150}, kVocab, 1);
  const std::span<const std::int32_t> all = tokens.values;
  const std::span<const float> logits = engine.append(all.first(75));
  made.logits.assign(logits.begin(), logits.end());
  engine.truncate(64);
  made.scores = engine.score(all.subspan(64, 31));
  made.greedy = generate(engine, all.first(13), 40, 0);
  // To the model's last position, and beyond it.
  const auto more = generate(engine, all.first(140), 30, 0);
  made.greedy.insert(made.greedy.end(), more.begin(), more.end());
  made.sampled = generate(engine, all.first(30), 40, 1);
}

Made made_by(const Case& how, const ModelLayout& layout) {
  Made made;
  made.cache_bytes.resize(static_cast<std::size_t>(layout.size()));
  comm::run_threads(layout.size(), {.timeout_s = 60}, [&](comm::World& world) {
    ModelRanks ranks(world, layout);
    test::TestRun run(1);
    InferenceEngine engine(*run.device, model(how.family), kPositions, how.weights, &ranks);
    fill(engine.store());
    made.cache_bytes[static_cast<std::size_t>(world.rank())] = engine.cache_bytes();
    if (!ranks.leads()) return engine.follow();
    use(engine, made);
    engine.dismiss();
  });
  return made;
}

class EngineLayouts : public ::testing::TestWithParam<Case> {};

// Products have at most 42 terms of a size of about 1, and logits pass through 3 blocks of 6 of
// them: the order of sums moves them by less than this.
constexpr double kTolerance = 3 * 6 * 42 * 4 * std::numeric_limits<float>::epsilon();

TEST_P(EngineLayouts, MakesTheTokensOfOneRank) {
  const Made one = made_by(GetParam(), {});
  const Made shared = made_by(GetParam(), GetParam().layout);
  ASSERT_EQ(shared.logits.size(), one.logits.size());
  for (std::size_t i = 0; i < one.logits.size(); ++i) {
    EXPECT_NEAR(shared.logits[i], one.logits[i], kTolerance) << "token " << i;
  }
  ASSERT_EQ(shared.scores.size(), 30U);
  for (std::size_t i = 0; i < one.scores.size(); ++i) {
    EXPECT_NEAR(shared.scores[i], one.scores[i], 2 * kTolerance) << i;
  }
  EXPECT_EQ(shared.greedy, one.greedy);
  EXPECT_EQ(shared.greedy.size(), 70U);
  EXPECT_EQ(shared.sampled, one.sampled);
}

// Each layer's keys and values lie on one rank of a pipeline, and of these each has its heads.
TEST_P(EngineLayouts, TheCacheIsShared) {
  const Case& how = GetParam();
  const nn::ModelConfig config = model(how.family);
  const auto t = static_cast<std::int64_t>(how.layout.tensor);
  const std::int64_t heads = std::max<std::int64_t>(1, config.heads.num_kv_heads / t);
  const std::int64_t rows = std::min(kPositions + t - 1, config.max_positions);
  const std::vector<std::size_t> bytes = made_by(how, how.layout).cache_bytes;
  std::size_t sum = 0;
  for (const std::size_t of_rank : bytes) sum += of_rank;
  EXPECT_EQ(sum, static_cast<std::size_t>(2 * 4 * config.num_layers * rows * heads *
                                          config.heads.head_dim * how.layout.tensor *
                                          how.layout.experts));
}

INSTANTIATE_TEST_SUITE_P(
    All, EngineLayouts,
    ::testing::Values(Case{"products", "llama", {.tensor = 2}},
                      Case{"copied_keys", "llama", {.tensor = 4}},
                      Case{"stages", "llama", {.pipeline = 3}},
                      Case{"both", "llama", {.tensor = 2, .pipeline = 2}},
                      Case{"tied_products", "gpt2", {.tensor = 4}},
                      Case{"tied_stages", "gpt2", {.pipeline = 2}},
                      Case{"tied_both", "gpt2", {.tensor = 2, .pipeline = 4}},
                      Case{"experts", "mixtral", {.experts = 2}},
                      Case{"experts_stages", "mixtral", {.pipeline = 2, .experts = 4}},
                      Case{"experts_products", "mixtral", {.tensor = 2}},
                      Case{"bf16", "llama", {.tensor = 2, .pipeline = 2}, Weights::kBf16},
                      Case{"int8", "llama", {.pipeline = 3}, Weights::kInt8}),
    [](const auto& info) { return info.param.name; });

std::string refusal(const Case& how) {
  try {
    made_by(how, how.layout);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    return error.what();
  }
  return "";
}

TEST(EngineRefusals, SayWhatToChoose) {
  using ::testing::HasSubstr;
  EXPECT_THAT(
      refusal({"", "llama", {.pipeline = 6}}),
      HasSubstr("the model has 5 stages beside its head, and each rank needs one; choose at "
                "most 5"));
  EXPECT_THAT(refusal({"", "llama", {.tensor = 3}}), HasSubstr("choose a divisor of 4"));
  EXPECT_THAT(refusal({"", "llama", {.experts = 2}}), HasSubstr("has no experts"));
  EXPECT_THAT(refusal({"", "llama", {.tensor = 2}, Weights::kInt8}),
              HasSubstr("in groups of 64 columns"));
}

}  // namespace
}  // namespace atl::serve
