// Adapters beside each other and beside their base; those that come and go while requests run.

#include <gmock/gmock.h>

#include <deque>
#include <memory>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/nn/adapters/linears.h"
#include "atoll/ops/testing.h"
#include "atoll/serve/batch/batch_generator.h"
#include "atoll/serve/batch/requests_testing.h"

namespace atl::serve {
namespace {

using test::alone;
using test::Answer;
using test::answer_of;
using test::Collector;
using test::expect_cached;
using test::Gate;
using test::kRoom;
using test::request;
using test::same;
using test::text;
using test::tiny_config;
using test::tiny_model;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kRank = 4;

// Factors for each Linear of a model but the third, the same for the same seed.
StepAdapter drawn_adapter(StepModel& model, const std::string& name, std::uint64_t seed) {
  const std::vector<nn::Linear*> all = nn::linears_of(model.model());
  // Its owner is the adapter.
  auto memory = std::make_shared<std::deque<std::vector<float>>>();
  const RngStream random(seed, RngPurpose::kSynthetic, 2);
  std::uint64_t draw = 0;
  const auto drawn = [&](const Shape& shape) {
    std::vector<float>& values = memory->emplace_back();
    for (std::int64_t i = 0; i < shape.num_elements(); ++i) {
      values.push_back(static_cast<float>(random.word(draw++) % 1000) / 1000 - 0.5F);
    }
    return Tensor(values.data(), {Dtype::kF32, shape});
  };
  StepAdapter adapter = {.name = name, .linears = {}, .memory = memory};
  const std::int64_t rank = 2 + static_cast<std::int64_t>(seed % 3);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Shape& w = all[i]->weight().spec.shape;
    nn::ServedFactors factors;
    if (i != 2) factors = {drawn({rank, w.dim(1)}), drawn({w.dim(0), rank})};
    adapter.linears.push_back(factors);
  }
  return adapter;
}

// Of a model of that shape.
StepAdapter adapter_for(const nn::ModelConfig& config, const std::string& name,
                        std::uint64_t seed) {
  const auto plain = tiny_model(config, {.max_positions = 8, .max_rows = 1, .num_blocks = 1});
  StepAdapter adapter = drawn_adapter(*plain, name, seed);
  adapter.version = std::to_string(seed);
  return adapter;
}

std::unique_ptr<StepModel> adapted_model(const nn::ModelConfig& config, const StepRoom& room,
                                         int threads) {
  auto model = std::make_unique<StepModel>(open_cpu(threads), config, Weights::kF32, room,
                                           StepLayers{}, KeepStored{}, kRank);
  model->initialise(5);
  return model;
}

void put_both(BatchGenerator& generator, const nn::ModelConfig& config) {
  generator.put_adapter(adapter_for(config, "x", 3));
  generator.put_adapter(adapter_for(config, "y", 4));
}

GenerationRequest greedy(const std::string& adapter, std::int64_t tokens = 40) {
  GenerationRequest made = {.prompt = text(4, 40), .max_new_tokens = tokens, .adapter = adapter};
  made.sampling.temperature = 0;
  made.top_logprobs = 1;
  return made;
}

std::string refusal(const std::function<void()>& call, ErrorKind kind) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

class AdapterFamilies : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(All, AdapterFamilies,
                         testing::Values("llama", "gpt2", "mistral", "mixtral", "gpt_neox"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(AdapterFamilies, AdaptersBesideEachOtherChangeNoBit) {
  const nn::ModelConfig config = tiny_config(GetParam());
  constexpr std::uint64_t kRequests = 30;
  const auto asked = [](std::uint64_t i) {
    GenerationRequest made = request(i);
    made.adapter = i % 3 == 0 ? "" : i % 3 == 1 ? "x" : "y";
    return made;
  };
  std::vector<Answer> expected;
  {
    BatchGenerator generator(adapted_model(config, kRoom, 1), {.slots = 1, .max_adapters = 2});
    put_both(generator, config);
    for (std::uint64_t i = 0; i < kRequests; ++i) {
      GenerationRequest lonely = asked(i);
      lonely.cache_key = std::to_string(i);
      expected.push_back(alone(generator, std::move(lonely)));
    }
    // They are three models.
    const auto tokens_of = [&](const std::string& adapter) {
      GenerationRequest made = {.prompt = text(1, 20), .max_new_tokens = 12, .adapter = adapter};
      std::vector<std::int32_t> tokens;
      for (const TokenResult& token : alone(generator, std::move(made)).tokens) {
        tokens.push_back(token.token);
      }
      return tokens;
    };
    EXPECT_NE(tokens_of(""), tokens_of("x"));
    EXPECT_NE(tokens_of("x"), tokens_of("y"));
  }
  StepRoom room = kRoom;
  room.num_blocks = 16;
  BatchGenerator generator(adapted_model(config, room, 2), {.slots = 8, .max_adapters = 2});
  put_both(generator, config);
  for (int round = 0; round < 2; ++round) {
    std::vector<std::shared_ptr<Collector>> collectors;
    for (std::uint64_t i = 0; i < kRequests; ++i) {
      collectors.push_back(std::make_shared<Collector>());
      ASSERT_TRUE(generator.submit(asked(i), collectors.back()).has_value());
    }
    for (std::uint64_t i = 0; i < kRequests; ++i) {
      const Answer answer = answer_of(*collectors[i]);
      EXPECT_TRUE(same(answer.tokens, expected[i].tokens)) << "request " << i;
      EXPECT_TRUE(same(answer.prompt, expected[i].prompt)) << "request " << i;
    }
  }
  expect_cached(generator, "");
  expect_cached(generator, "x");
}

TEST(Adapters, ANewOneOfTheNameAnswersWhatComesLater) {
  const nn::ModelConfig config = tiny_config("llama");
  std::optional<Answer> of_three, of_four;
  {
    BatchGenerator generator(adapted_model(config, kRoom, 1), {.max_adapters = 2});
    put_both(generator, config);
    of_three = alone(generator, greedy("x"));
    of_four = alone(generator, greedy("y"));
    ASSERT_FALSE(same(of_three->tokens, of_four->tokens));
  }
  BatchGenerator generator(adapted_model(config, kRoom, 2),
                           {.slots = 4, .version = "one", .max_adapters = 1});
  generator.put_adapter(adapter_for(config, "z", 3));
  EXPECT_EQ(generator.version("z"), "one+z@3");
  EXPECT_EQ(generator.version(""), "one");
  const auto begun = std::make_shared<Collector>();
  const auto gate = std::make_shared<Gate>();
  generator.submit({.prompt = text(1, 3), .max_new_tokens = 2}, gate);
  gate->wait_until_entered();  // so that this one has not ended before the adapter goes
  generator.submit(greedy("z"), begun);
  generator.put_adapter(adapter_for(config, "z", 4));
  EXPECT_EQ(generator.version("z"), "one+z@4");
  // The first one still has its user: two live where one may, and there is room for no third.
  EXPECT_THAT(refusal([&] { generator.check_adapter_room("z"); }, ErrorKind::kResource),
              HasSubstr("still answer requests"));
  const auto later = std::make_shared<Collector>();
  generator.submit(greedy("z"), later);
  gate->open();
  const Answer old = answer_of(*begun);
  EXPECT_TRUE(same(old.tokens, of_three->tokens));
  EXPECT_EQ(old.result.version, "one+z@3");
  const Answer answer = answer_of(*later);
  EXPECT_TRUE(same(answer.tokens, of_four->tokens));
  EXPECT_EQ(answer.result.version, "one+z@4");
  EXPECT_EQ(answer.result.cached_tokens, 0) << "keys and values of the one before";
  generator.check_adapter_room("z");
}

TEST(Adapters, OneThatIsRemovedEndsWhatAskedForIt) {
  const nn::ModelConfig config = tiny_config("gpt2");
  BatchGenerator generator(adapted_model(config, kRoom, 2), {.slots = 4, .max_adapters = 2});
  put_both(generator, config);
  const Answer expected = alone(generator, greedy("x"));
  EXPECT_THAT(generator.adapters(), ElementsAre("x", "y"));
  const auto begun = std::make_shared<Collector>();
  const auto gate = std::make_shared<Gate>();
  generator.submit({.prompt = text(1, 3), .max_new_tokens = 2}, gate);
  gate->wait_until_entered();  // so that this one has not ended before the adapter goes
  generator.submit(greedy("x"), begun);
  EXPECT_TRUE(generator.remove_adapter("x"));
  EXPECT_FALSE(generator.remove_adapter("x"));
  EXPECT_THAT(generator.adapters(), ElementsAre("y"));
  EXPECT_THAT(refusal([&] { generator.submit(greedy("x"), std::make_shared<Collector>()); },
                      ErrorKind::kUser),
              HasSubstr("no adapter x"));
  gate->open();
  EXPECT_TRUE(same(answer_of(*begun).tokens, expected.tokens));
  EXPECT_TRUE(generator.remove_adapter("y"));
  EXPECT_THAT(generator.adapters(), IsEmpty());
}

TEST(Adapters, HaveBounds) {
  const nn::ModelConfig config = tiny_config("llama");
  BatchGenerator generator(adapted_model(config, kRoom, 1), {.max_adapters = 1});
  generator.put_adapter(adapter_for(config, "x", 3));
  EXPECT_THAT(
      refusal([&] { generator.put_adapter(adapter_for(config, "y", 3)); }, ErrorKind::kResource),
      HasSubstr("--max-adapters"));
  StepAdapter wide = adapter_for(config, "x", 3);
  std::vector<float> values(static_cast<std::size_t>((kRank + 1) * config.hidden_size));
  wide.linears[0].a = Tensor(values.data(), {Dtype::kF32, {kRank + 1, config.hidden_size}});
  EXPECT_THAT(refusal([&] { generator.put_adapter(wide); }, ErrorKind::kUser),
              HasSubstr("--max-adapter-rank"));
  BatchGenerator without(tiny_model(config, kRoom), {});
  EXPECT_THAT(refusal([&] { without.put_adapter(adapter_for(config, "x", 3)); }, ErrorKind::kUser),
              HasSubstr("--max-adapter-rank"));
}

// More adapters in turn than any step has, so that their places are taken again.
TEST(Adapters, ManyInTurnChangeNoBit) {
  const nn::ModelConfig config = tiny_config("llama");
  BatchGenerator generator(adapted_model(config, kRoom, 2), {.slots = 2, .max_adapters = 6});
  std::vector<Answer> expected;
  for (std::uint64_t i = 0; i < 6; ++i) {
    const std::string name = std::to_string(i);
    generator.put_adapter(adapter_for(config, name, 10 + i));
    GenerationRequest made = greedy(name, 10);
    made.cache_key = "alone";
    expected.push_back(alone(generator, std::move(made)));
  }
  for (int round = 0; round < 3; ++round) {
    std::vector<std::shared_ptr<Collector>> collectors;
    for (std::uint64_t i = 0; i < 6; ++i) {
      collectors.push_back(std::make_shared<Collector>());
      ASSERT_TRUE(generator.submit(greedy(std::to_string(i), 10), collectors.back()).has_value());
    }
    for (std::size_t i = 0; i < 6; ++i) {
      EXPECT_TRUE(same(answer_of(*collectors[i]).tokens, expected[i].tokens)) << i;
    }
  }
}

TEST(Adapters, AHeldVersionStaysUntilItIsLetGo) {
  const nn::ModelConfig config = tiny_config("llama");
  BatchGenerator generator(adapted_model(config, kRoom, 1),
                           {.slots = 2, .version = "one", .max_adapters = 1});
  std::thread other;
  std::vector<std::shared_ptr<Collector>> collectors;
  {
    const auto held = generator.hold_version();
    other = std::thread([&] { generator.replace_model(adapted_model(config, kRoom, 1), "two"); });
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(generator.version(""), "one");
      collectors.push_back(std::make_shared<Collector>());
      generator.submit({.prompt = text(1, 3), .max_new_tokens = 2}, collectors.back());
      std::this_thread::yield();
    }
  }
  other.join();
  EXPECT_EQ(generator.version(""), "two");
  for (const auto& collector : collectors) EXPECT_EQ(collector->wait().version, "one");
}

}  // namespace
}  // namespace atl::serve
