// Generation against the whole forward pass: what the cache, the pieces of a prompt and the threads
// must not change.

#include "atoll/serve/inference_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/base/rng.h"
#include "atoll/ops/int8/int8_arithmetic.h"
#include "atoll/ops/int8/ref.h"
#include "atoll/ops/testing.h"
#include "atoll/parallel/store/store_single.h"

namespace atl::serve {
namespace {

constexpr std::int64_t kVocab = 61;
constexpr std::int64_t kPositions = 160;

nn::ModelConfig llama() {
  nn::ModelConfig config;
  config.family = "llama";
  config.vocab_size = kVocab;
  config.hidden_size = 24;
  config.num_layers = 2;
  config.heads = {.num_heads = 4, .num_kv_heads = 2, .head_dim = 6};
  config.intermediate_size = 40;
  config.max_positions = kPositions;
  config.initializer_range = 0.3;  // far from zero: tokens and positions matter
  return config;
}

nn::ModelConfig gpt2() {
  nn::ModelConfig config = llama();
  config.family = "gpt2";
  config.heads.num_kv_heads = 4;
  config.intermediate_size = 96;
  config.activation = "gelu_new";
  config.attention_bias = true;
  config.mlp_bias = true;
  config.tie_embeddings = true;
  return config;
}

// Initial values, and biases and norms' scales off 0 and 1.
void fill(parallel::ParamStore& store, Run& run) {
  store.initialise(run, 5);
  for (std::size_t p = 0; p < store.params().size(); ++p) {
    const Tensor value = store.params()[p]->value;
    if (!value.defined() || value.shape().rank() > 1) continue;
    const RngStream stream(7, RngPurpose::kSynthetic, p);
    for (std::int64_t i = 0; i < value.num_elements(); ++i) {
      value.data<float>()[i] += 0.2F * stream.uniform(static_cast<std::uint64_t>(i)) - 0.1F;
    }
  }
}

// An engine on a device of its own.
struct Generator {
  explicit Generator(const nn::ModelConfig& config, std::int64_t max_tokens = kPositions,
                     int threads = 2, Weights weights = Weights::kF32)
      : run(threads), engine(*run.device, config, max_tokens, weights) {
    fill(engine.store(), run);
  }

  // The logits after all of `tokens`, given in one call.
  std::vector<float> logits(std::span<const std::int32_t> tokens) {
    const std::span<const float> view = engine.append(tokens);
    return {view.begin(), view.end()};
  }

  test::TestRun run;
  InferenceEngine engine;
};

// The loss of every position by one forward pass over the whole sequence, without a cache.
std::vector<double> whole_pass(const nn::ModelConfig& config, Tensor tokens, Tensor targets) {
  test::TestRun run;
  const auto model = nn::build_model(config, {});
  parallel::SingleStore store(*model, /*training=*/false);
  parallel::Runner runner(*model, store, parallel::Use::kEvaluate, 1, tokens.dim(1));
  MemoryPlan plan;
  store.request(plan);
  runner.request(plan);
  plan.place();
  const Arena arena(*run.device, plan);
  store.bind(arena);
  runner.bind(arena);
  fill(store, run);
  runner.evaluate(run, {tokens, targets, 0});
  const float* losses = runner.losses().data<float>();
  return {losses, losses + tokens.dim(1)};
}

// -log softmax(logits)[target], in double.
double loss_of(std::span<const float> logits, std::int32_t target) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return std::log(sum) + largest - logits[static_cast<std::size_t>(target)];
}

// The two ways round each of about 10 products a token goes through differently: each a sum of at
// most 96 terms, so off by 96 eps of its size at worst. Sizes here stay within 8.
constexpr double kTolerance = 10 * 96 * 8 * 0.5 * std::numeric_limits<float>::epsilon();

std::optional<ErrorKind> kind_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error.kind();
  }
  return std::nullopt;
}

class EngineTest : public ::testing::TestWithParam<const char*> {
 protected:
  nn::ModelConfig config() const { return std::string(GetParam()) == "llama" ? llama() : gpt2(); }

  test::OwnedTensor<std::int32_t> tokens_ = test::random_tokens({1, 150}, kVocab, 1);
  test::OwnedTensor<std::int32_t> targets_ = test::random_tokens({1, 150}, kVocab, 2);
};

INSTANTIATE_TEST_SUITE_P(Families, EngineTest, ::testing::Values("llama", "gpt2"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(EngineTest, TokenByTokenAgreesWithTheWholePass) {
  Generator generator(config());
  const std::vector<double> expected = whole_pass(config(), tokens_, targets_);
  for (std::size_t t = 0; t < tokens_.values.size(); ++t) {
    const auto logits = generator.engine.append({&tokens_.values[t], 1});
    ASSERT_EQ(logits.size(), static_cast<std::size_t>(kVocab));
    ASSERT_NEAR(loss_of(logits, targets_.values[t]), expected[t], kTolerance) << "position " << t;
  }
  EXPECT_EQ(generator.engine.length(), 150);
}

TEST_P(EngineTest, PromptsOfAnyLengthAgreeWithTheWholePass) {
  const std::vector<double> expected = whole_pass(config(), tokens_, targets_);
  Generator generator(config());
  // Around one and two of the pieces that long prompts go through in.
  for (const std::size_t length : {1, 2, 63, 64, 65, 127, 128, 129, 150}) {
    generator.engine.reset();
    const auto logits = generator.engine.append({tokens_.values.data(), length});
    const std::int32_t target = targets_.values[length - 1];
    EXPECT_NEAR(loss_of(logits, target), expected[length - 1], kTolerance) << "length " << length;
    EXPECT_EQ(generator.engine.length(), static_cast<std::int64_t>(length));
  }
}

TEST_P(EngineTest, AWholePieceMayFollowSingleTokens) {
  const std::vector<double> expected = whole_pass(config(), tokens_, targets_);
  Generator generator(config());
  const std::span<const std::int32_t> tokens = tokens_.values;
  generator.engine.append(tokens.first(5));
  const auto logits = generator.engine.append(tokens.subspan(5, 70));
  EXPECT_NEAR(loss_of(logits, targets_.values[74]), expected[74], kTolerance);
}

TEST_P(EngineTest, ScoresAgreeWithTheWholePass) {
  test::OwnedTensor<std::int32_t> next({1, 150});
  std::copy(tokens_.values.begin() + 1, tokens_.values.end(), next.values.begin());
  const std::vector<double> expected = whole_pass(config(), tokens_, next);
  Generator generator(config());
  generator.engine.limit_vocabulary(kVocab - 20);  // bounds what is made, not what is scored
  const std::span<const std::int32_t> tokens = tokens_.values;
  // After nothing and after some, in one piece and in several of each length.
  for (const std::size_t before : {0, 1, 40}) {
    for (const std::size_t count : {2, 9, 10, 74, 110}) {
      generator.engine.reset();
      if (before > 0) generator.engine.append(tokens.first(before));
      const std::vector<double> scores = generator.engine.score(tokens.subspan(before, count));
      ASSERT_EQ(scores.size(), count - 1);
      EXPECT_EQ(generator.engine.length(), static_cast<std::int64_t>(before + count - 1));
      for (std::size_t i = 0; i < scores.size(); ++i) {
        ASSERT_NEAR(scores[i], -expected[before + i], kTolerance) << before << " + " << i;
      }
    }
  }
}

TEST_P(EngineTest, TruncatingForgetsTheEndOnly) {
  const std::span<const std::int32_t> tokens = tokens_.values;
  Generator used(config());
  used.engine.append(tokens.first(64));
  used.engine.append(tokens.subspan(100, 30));
  used.engine.truncate(64);
  EXPECT_EQ(used.engine.length(), 64);
  Generator fresh(config());
  EXPECT_EQ(used.logits(tokens.subspan(64, 40)), fresh.logits(tokens.first(104)));
  EXPECT_EQ(kind_of([&] { used.engine.truncate(105); }), ErrorKind::kInternal);
}

TEST_P(EngineTest, WeightsThatAreNotFiniteEndAScore) {
  Generator generator(config());
  generator.engine.store().params().back()->value.data<float>()[0] =
      std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(kind_of([&] { generator.engine.score(std::span(tokens_.values).first(10)); }),
            ErrorKind::kNumeric);
}

TEST_P(EngineTest, ResetForgetsEverything) {
  Generator used(config());
  used.engine.append(tokens_.values);
  used.engine.reset();
  EXPECT_EQ(used.engine.length(), 0);
  Generator fresh(config());
  const std::vector<std::int32_t> other(tokens_.values.rbegin(), tokens_.values.rend());
  EXPECT_EQ(used.logits(other), fresh.logits(other));
}

TEST_P(EngineTest, ThreadCountChangesNoBit) {
  Generator one(config(), kPositions, 1);
  const std::vector<float> expected = one.logits(tokens_.values);
  for (const int threads : {2, 3, 5}) {
    Generator more(config(), kPositions, threads);
    EXPECT_EQ(more.logits(tokens_.values), expected) << threads << " threads";
  }
}

TEST_P(EngineTest, RoomThatIsNotUsedChangesNothing) {
  const std::span<const std::int32_t> prompt = std::span(tokens_.values).first(7);
  EXPECT_EQ(Generator(config(), 7).logits(prompt), Generator(config(), kPositions).logits(prompt));
}

// What a generation made, and how it ended.
struct Generated {
  InferenceEngine::End end;
  std::vector<std::int32_t> tokens;
};

Generated generate(InferenceEngine& engine, std::span<const std::int32_t> prompt,
                   std::int64_t max_new, const SamplingOptions& options, std::int32_t stop = -1) {
  engine.reset();
  TokenSampler sampler(options);
  Generated made;
  made.end = engine.generate(prompt, max_new, sampler, stop, [&](std::int32_t token) {
    made.tokens.push_back(token);
    return true;
  });
  return made;
}

TEST_P(EngineTest, TheSeedAloneDecidesWhatIsSampled) {
  Generator generator(config());
  const std::span<const std::int32_t> prompt = std::span(tokens_.values).first(70);
  const Generated first = generate(generator.engine, prompt, 40, {.seed = 3});
  EXPECT_EQ(first.end, InferenceEngine::End::kMaxNewTokens);
  EXPECT_EQ(first.tokens.size(), 40U);
  EXPECT_EQ(generate(generator.engine, prompt, 40, {.seed = 3}).tokens, first.tokens);
  EXPECT_NE(generate(generator.engine, prompt, 40, {.seed = 4}).tokens, first.tokens);
  Generator other(config(), kPositions, 3);
  EXPECT_EQ(generate(other.engine, prompt, 40, {.seed = 3}).tokens, first.tokens);
}

TEST_P(EngineTest, GreedyTakesTheMostLikelyTokenEachTime) {
  Generator generator(config());
  const std::vector<std::int32_t> prompt(tokens_.values.begin(), tokens_.values.begin() + 5);
  const Generated greedy = generate(generator.engine, prompt, 20, {.temperature = 0});
  std::vector<std::int32_t> sequence = prompt;
  for (const std::int32_t token : greedy.tokens) {
    generator.engine.reset();
    const std::vector<float> logits = generator.logits(sequence);
    EXPECT_EQ(token, std::max_element(logits.begin(), logits.end()) - logits.begin());
    sequence.push_back(token);
  }
}

TEST_P(EngineTest, SaysWhatEndedAGeneration) {
  Generator generator(config(), 12);
  const std::span<const std::int32_t> prompt = std::span(tokens_.values).first(4);
  const Generated all = generate(generator.engine, prompt, 8, {.seed = 3});
  EXPECT_EQ(all.end, InferenceEngine::End::kMaxNewTokens);
  const std::int32_t stop = all.tokens[3];
  const auto before = std::find(all.tokens.begin(), all.tokens.end(), stop);
  const Generated stopped = generate(generator.engine, prompt, 8, {.seed = 3}, stop);
  EXPECT_EQ(stopped.end, InferenceEngine::End::kStopToken);
  EXPECT_EQ(stopped.tokens, std::vector<std::int32_t>(all.tokens.begin(), before));

  generator.engine.reset();
  TokenSampler sampler(SamplingOptions{});
  std::int64_t calls = 0;
  EXPECT_EQ(
      generator.engine.generate(prompt, 8, sampler, -1, [&](std::int32_t) { return ++calls < 3; }),
      InferenceEngine::End::kCallback);
  EXPECT_EQ(calls, 3);
}

TEST_P(EngineTest, PastTheLastPositionEachTokenIsOfTheLastOnesRecomputed) {
  constexpr std::size_t kWindow = 75;  // a piece of 64, one of 8 and single ones
  Generator generator(config(), kWindow);
  const std::span<const std::int32_t> prompt = std::span(tokens_.values).first(70);
  for (const SamplingOptions& options : {SamplingOptions{.temperature = 0}, {.seed = 3}}) {
    const Generated made = generate(generator.engine, prompt, 40, options);
    EXPECT_EQ(made.end, InferenceEngine::End::kMaxNewTokens);
    ASSERT_EQ(made.tokens.size(), 40U) << "all that were asked for";

    std::vector<std::int32_t> sequence(prompt.begin(), prompt.end());
    TokenSampler sampler(options);
    for (std::size_t i = 0; i < made.tokens.size(); ++i) {
      const std::span<const std::int32_t> all = sequence;
      const auto seen = all.last(std::min(all.size(), kWindow));
      // Nothing is left over from earlier windows: a new engine finds the same, bit for bit, and
      // a pass without any cache finds the same but for rounding.
      Generator fresh(config(), kWindow);
      const std::vector<float> logits = fresh.logits(seen);
      const auto position = static_cast<std::int64_t>(all.size());
      if (all.size() > kWindow) {
        ASSERT_EQ(sampler.next(logits, 0, position), made.tokens[i]) << "token " << i;
      }
      if (i % 10 == 9) {
        test::OwnedTensor<std::int32_t> whole({1, static_cast<std::int64_t>(seen.size())});
        test::OwnedTensor<std::int32_t> next({1, static_cast<std::int64_t>(seen.size())});
        std::ranges::copy(seen, whole.values.begin());
        std::ranges::fill(next.values, made.tokens[i]);
        EXPECT_NEAR(loss_of(logits, made.tokens[i]), whole_pass(config(), whole, next).back(),
                    kTolerance);
      }
      sequence.push_back(made.tokens[i]);
    }
  }
}

TEST_P(EngineTest, APromptThatIsTooLongIsSeenFromItsEnd) {
  Generator generator(config(), 20);
  const std::span<const std::int32_t> tokens = tokens_.values;
  const Generated of_all = generate(generator.engine, tokens, 5, {.temperature = 0});
  EXPECT_EQ(generate(generator.engine, tokens.last(20), 5, {.temperature = 0}).tokens,
            of_all.tokens);
  // The same in two parts, of which the cache has the first already.
  generator.engine.reset();
  generator.engine.append(tokens.subspan(125, 15));
  TokenSampler greedy({.temperature = 0});
  std::vector<std::int32_t> made;
  generator.engine.generate(tokens.subspan(140), 5, greedy, -1, [&](std::int32_t token) {
    made.push_back(token);
    return true;
  });
  EXPECT_EQ(made, of_all.tokens);
}

TEST_P(EngineTest, TooManyTokensAreTheUsersMistakeAndChangeNothing) {
  Generator generator(config(), 10);
  const std::span<const std::int32_t> tokens = tokens_.values;
  EXPECT_EQ(kind_of([&] { generator.engine.append(tokens.first(11)); }), ErrorKind::kUser);
  EXPECT_EQ(generator.engine.length(), 0);
  generator.engine.append(tokens.first(9));
  EXPECT_EQ(kind_of([&] { generator.engine.append(tokens.subspan(9, 2)); }), ErrorKind::kUser);
  const std::vector<float> logits = generator.logits(tokens.subspan(9, 1));
  EXPECT_EQ(kind_of([&] { generator.engine.append(tokens.subspan(10, 1)); }), ErrorKind::kUser);
  EXPECT_EQ(logits, Generator(config(), 10).logits(tokens.first(10)));

  EXPECT_EQ(kind_of([&] { Generator(config(), kPositions + 1); }), ErrorKind::kUser);
  EXPECT_EQ(kind_of([&] { Generator(config(), 0); }), ErrorKind::kUser);
  EXPECT_EQ(kind_of([&] { generator.engine.append({}); }), ErrorKind::kInternal);
}

// Makes the weights of an f32 engine those that another one has rounded.
void widen(parallel::ParamStore& from, parallel::ParamStore& to) {
  for (std::size_t p = 0; p < from.params().size(); ++p) {
    const nn::Param& param = *from.params()[p];
    const Tensor value = to.params()[p]->value;
    ASSERT_EQ(param.name, to.params()[p]->name);
    for (std::int64_t i = 0; i < value.num_elements(); ++i) {
      value.data<float>()[i] =
          param.as_int8   ? ops::ref::int8_element(param.int8, i / value.dim(1), i % value.dim(1))
          : param.as_bf16 ? to_f32(param.value.data<Bf16>()[i])
                          : param.value.data<float>()[i];
    }
  }
}

TEST_P(EngineTest, RoundedWeightsComputeWhatTheirWidenedCopiesDo) {
  for (const Weights weights : {Weights::kBf16, Weights::kInt8}) {
    Generator rounded(config(), kPositions, 2, weights);
    Generator wide(config());
    widen(rounded.engine.store(), wide.engine.store());
    // A prompt in pieces of 64, 8 and 1, and tokens one by one: each way of a product.
    const std::span<const std::int32_t> tokens(tokens_.values);
    for (const auto& [begin, length] : {std::pair{0, 73}, {73, 1}, {74, 1}}) {
      const auto piece =
          tokens.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(length));
      const std::vector<float> got = rounded.logits(piece);
      const std::vector<float> wanted = wide.logits(piece);
      for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], kTolerance) << i;
    }
  }
}

TEST_P(EngineTest, Bf16WeightsOfABf16ModelAreItsOwn) {
  Generator kept(config(), kPositions, 2, Weights::kBf16);
  Generator wide(config());
  widen(kept.engine.store(), wide.engine.store());
  const auto fill = [&](const nn::Param& param, const Tensor& whole) {
    const auto& all = wide.engine.store().params();
    const auto same = std::ranges::find(all, param.name, &nn::Param::name);
    ASSERT_NE(same, all.end());
    std::copy_n((*same)->value.data<float>(), whole.num_elements(), whole.data<float>());
  };
  Generator again(config(), kPositions, 2, Weights::kBf16);
  again.engine.store().fill(fill);
  for (std::size_t p = 0; p < kept.engine.store().params().size(); ++p) {
    const nn::Param& one = *kept.engine.store().params()[p];
    const nn::Param& other = *again.engine.store().params()[p];
    EXPECT_EQ(std::memcmp(one.value.raw(), other.value.raw(), one.value.bytes()), 0) << one.name;
  }
  // One row at a time bits do not depend on how a weight is kept.
  const std::span<const std::int32_t> tokens(tokens_.values);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(again.logits(tokens.subspan(i, 1)), wide.logits(tokens.subspan(i, 1)));
  }
}

TEST_P(EngineTest, Bf16WeightsAreTheOnlyCopy) {
  Generator kept(config(), kPositions, 2, Weights::kBf16);
  Generator wide(config());
  for (std::size_t p = 0; p < kept.engine.store().params().size(); ++p) {
    const nn::Param& param = *kept.engine.store().params()[p];
    const bool is_matrix = param.spec.shape.rank() == 2 && !param.is_position;
    ASSERT_EQ(param.value.dtype(), is_matrix ? Dtype::kBf16 : Dtype::kF32) << param.name;
    const float* exact = wide.engine.store().params()[p]->value.data<float>();
    for (std::int64_t i = 0; is_matrix && i < param.value.num_elements(); ++i) {
      ASSERT_EQ(to_f32(param.value.data<Bf16>()[i]), to_f32(to_bf16(exact[i]))) << param.name;
    }
  }
  EXPECT_LT(kept.engine.bytes_per_token(), 0.55 * wide.engine.bytes_per_token());
}

TEST_P(EngineTest, Int8WeightsAreTheOnlyCopy) {
  Generator rounded(config(), kPositions, 2, Weights::kInt8);
  Generator wide(config());
  for (const nn::Param* param : rounded.engine.store().params()) {
    const bool is_matrix = param->spec.shape.rank() == 2 && !param->is_position;
    EXPECT_EQ(param->as_int8, is_matrix) << param->name;
    EXPECT_EQ(param->value.defined(), !is_matrix) << param->name;
  }
  const nn::Param& head = *wide.engine.model().head->weight();
  const ops::Int8Matrix& rounded_head = rounded.engine.model().head->weight()->int8;
  for (std::int64_t i = 0; i < head.value.num_elements(); ++i) {
    const std::int64_t row = i / head.value.dim(1);
    // Half of a 127th of the largest, which is below 1.5 here.
    EXPECT_NEAR(ops::ref::int8_element(rounded_head, row, i % head.value.dim(1)),
                head.value.data<float>()[i], 1.5 / 254);
  }
  // A byte and a sixteenth for four, in rows of at least one group; here rows are shorter.
  EXPECT_LT(rounded.engine.bytes_per_token(), 0.5 * wide.engine.bytes_per_token());
}

TEST_P(EngineTest, RoundedActivationsHaveTheSameBitsInEachArithmetic) {
  using ops::Int8Arithmetic;
  const std::span<const std::int32_t> tokens = std::span(tokens_.values).first(75);
  Generator generator(config(), kPositions, 2, Weights::kInt8);
  const std::vector<double> exact = generator.engine.score(tokens);
  std::optional<std::vector<double>> first;
  for (const auto arithmetic : {Int8Arithmetic::kVector, Int8Arithmetic::kVnni,
                                Int8Arithmetic::kAmx, Int8Arithmetic::kAuto}) {
    if (!ops::has_int8_arithmetic(arithmetic)) continue;
    ops::set_int8_arithmetic(arithmetic);
    generator.engine.reset();
    const std::vector<double> scores = generator.engine.score(tokens);
    ops::set_int8_arithmetic(Int8Arithmetic::kF32);
    if (!first) first = scores;
    EXPECT_EQ(scores, *first) << ops::int8_arithmetic_name(arithmetic);
  }
  // Products are rounded to a part in 254 of the largest activation, some tens of them in a row.
  double difference = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) difference += std::abs(exact[i] - (*first)[i]);
  EXPECT_GT(difference, 0);
  EXPECT_LT(difference / static_cast<double>(exact.size()), 0.05);
}

TEST(RoundedStore, NamesTheParameterThatIsNotFinite) {
  test::TestRun run;
  InferenceEngine engine(*run.device, gpt2(), kPositions, Weights::kInt8);
  try {
    engine.store().fill([](const nn::Param& param, const Tensor& whole) {
      std::fill_n(whole.data<float>(), whole.num_elements(), 1.0F);
      if (param.name.find("h.1.mlp.c_fc.weight") != std::string::npos) {
        whole.data<float>()[5] = std::nanf("");
      }
    });
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kNumeric);
    EXPECT_NE(std::string(error.what()).find("h.1.mlp.c_fc.weight"), std::string::npos)
        << error.what();
  }
}

TEST(Weights, AreNamed) {
  EXPECT_EQ(parse_weights("f32"), Weights::kF32);
  EXPECT_EQ(parse_weights("bf16"), Weights::kBf16);
  EXPECT_EQ(parse_weights("int8"), Weights::kInt8);
  EXPECT_EQ(kind_of([] { parse_weights("int4"); }), ErrorKind::kUser);
}

}  // namespace
}  // namespace atl::serve
