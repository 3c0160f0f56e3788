// Many requests at once: each gets, bit for bit, what it gets alone; and what a full queue, short
// memory, a cancelled request and a stop do.

#include "atoll/serve/batch/batch_generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <memory>
#include <stdexcept>

#include "atoll/base/error.h"
#include "atoll/base/rng.h"
#include "atoll/ops/testing.h"
#include "atoll/serve/batch/batch_testing.h"
#include "atoll/serve/batch/requests_testing.h"
#include "atoll/serve/inference_engine.h"

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

class Families : public testing::TestWithParam<const char*> {};

TEST_P(Families, ManyTogetherGetWhatEachGetsAlone) {
  const nn::ModelConfig config = tiny_config(GetParam());
  constexpr std::uint64_t kRequests = 40;
  std::vector<Answer> expected;
  {
    // Each by a generator that has seen nothing else would take long; one after another will do, as
    // the next test compares that with another engine.
    BatchGenerator generator(tiny_model(config, kRoom, 1), {.slots = 1, .rows_with_guesses = 0});
    for (std::uint64_t i = 0; i < kRequests; ++i) {
      GenerationRequest lonely = request(i);
      lonely.cache_key = std::to_string(i);
      expected.push_back(alone(generator, std::move(lonely)));
    }
  }
  for (const std::int64_t slots : {2, 5, 16}) {
    // So few blocks that some are preempted.
    StepRoom room = kRoom;
    room.num_blocks = 12;
    room.max_rows = 8 + slots;
    BatchGenerator generator(tiny_model(config, room, 2), {.slots = slots});
    for (int round = 0; round < 3; ++round) {
      const auto gate = std::make_shared<Gate>();
      ASSERT_TRUE(generator.submit({.prompt = {1}, .max_new_tokens = 1}, gate).has_value());
      std::vector<std::shared_ptr<Collector>> collectors;
      for (std::uint64_t i = 0; i < kRequests; ++i) {
        collectors.push_back(std::make_shared<Collector>());
        ASSERT_TRUE(generator.submit(request(i), collectors.back()).has_value());
      }
      gate->open();
      for (std::uint64_t i = 0; i < kRequests; ++i) {
        const Answer answer = answer_of(*collectors[i]);
        EXPECT_TRUE(same(answer.tokens, expected[i].tokens)) << "request " << i;
        EXPECT_TRUE(same(answer.prompt, expected[i].prompt)) << "request " << i;
        EXPECT_EQ(answer.result.finish, expected[i].result.finish) << "request " << i;
      }
    }
    const GeneratorStats stats = generator.stats();
    EXPECT_EQ(stats.finished, 3 * static_cast<std::int64_t>(kRequests + 1));
    expect_cached(generator, "");
    EXPECT_EQ(stats.blocks_in_use, 0);
    EXPECT_TRUE(slots < 16 || stats.preempted > 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Families,
                         testing::Values("llama", "gpt2", "mistral", "mixtral", "gpt_neox",
                                         "gpt_oss"),
                         [](const auto& info) { return std::string(info.param); });

// Of gpt_oss: windows and sinks in both caches.
class OneSequence : public testing::TestWithParam<const char*> {};

TEST_P(OneSequence, GreedyTokensAreThoseOfTheEngine) {
  const nn::ModelConfig config = tiny_config(GetParam());
  auto model = tiny_model(config, kRoom);
  test::TestRun run;
  InferenceEngine engine(*run.device, config, 160);
  engine.store().initialise(run, 5);
  BatchGenerator generator(std::move(model), {});
  GenerationRequest one = {.prompt = text(9, 70), .max_new_tokens = 40};
  one.sampling.temperature = 0;
  one.top_logprobs = 0;
  std::vector<std::int32_t> expected;
  engine.generate(one.prompt, 40, TokenSampler(one.sampling), -1, [&](std::int32_t token) {
    expected.push_back(token);
    return true;
  });
  const std::vector<std::int32_t> prompt = one.prompt;
  const Answer answer = alone(generator, std::move(one));
  ASSERT_EQ(answer.tokens.size(), 40U);
  std::vector<std::int32_t> whole = prompt;
  for (std::size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(answer.tokens[i].token, expected[i]);
    whole.push_back(answer.tokens[i].token);
  }
  engine.reset();
  const std::vector<double> scores = engine.score(whole);
  for (std::size_t i = 0; i < 40; ++i) {
    EXPECT_NEAR(answer.tokens[i].logprob, scores[prompt.size() - 1 + i], 1e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(BatchGenerator, OneSequence, testing::Values("llama", "gpt_oss"),
                         [](const auto& info) { return std::string(info.param); });

TEST(BatchGenerator, GuessesChangeNothingAndSaveSteps) {
  const nn::ModelConfig config = tiny_config("llama");
  // A small model that is sure of itself repeats itself.
  const auto repeating = [](std::uint64_t seed) {
    GenerationRequest request = {.prompt = text(seed, 9), .max_new_tokens = 140};
    request.sampling = {.temperature = seed % 2 == 0 ? 0.0 : 0.2, .seed = seed};
    request.top_logprobs = 1;
    return request;
  };
  BatchGenerator plain(tiny_model(config, kRoom), {.rows_with_guesses = 0});
  BatchGenerator guessing(tiny_model(config, kRoom), {});
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const Answer expected = alone(plain, repeating(seed));
    const Answer answer = alone(guessing, repeating(seed));
    EXPECT_TRUE(same(answer.tokens, expected.tokens)) << seed;
    EXPECT_EQ(answer.result.new_tokens, 140);
  }
  // Of what the next token's logits depend on beside the model there is nothing to guess from.
  const std::int64_t guessed = guessing.stats().guessed_tokens;
  GenerationRequest changed = repeating(0);
  changed.changes.bias = {{3, 0.01}};
  EXPECT_EQ(alone(guessing, std::move(changed)).result.new_tokens, 140);
  EXPECT_EQ(guessing.stats().guessed_tokens, guessed);
  EXPECT_GT(guessing.stats().right_guesses, 50) << "of " << guessing.stats().guessed_tokens;
  EXPECT_EQ(guessing.stats().steps + guessing.stats().right_guesses - 140, plain.stats().steps);
}

TEST(BatchGenerator, ACancelledRequestEndsWhereverItIs) {
  BatchGenerator generator(tiny_model(tiny_config("llama"), kRoom), {.slots = 1});
  std::vector<std::shared_ptr<Collector>> collectors;
  std::vector<std::uint64_t> numbers;
  for (int i = 0; i < 3; ++i) {
    collectors.push_back(std::make_shared<Collector>());
    GenerationRequest long_one = {.prompt = text(3, 5), .max_new_tokens = 150};
    numbers.push_back(generator.submit(std::move(long_one), collectors.back()).value());
  }
  generator.cancel(numbers[1]);  // in the queue
  EXPECT_EQ(collectors[1]->wait().finish, Finish::kCancelled);
  collectors[0]->wait_for_tokens(2);
  generator.cancel(numbers[0]);
  generator.cancel(numbers[0]);
  generator.cancel(12345);
  collectors[0]->wait();
  EXPECT_EQ(collectors[2]->wait().new_tokens, 150);
  for (const auto& collector : collectors) EXPECT_EQ(collector->ends(), 1);
  EXPECT_EQ(generator.stats().blocks_in_use, 0);
}

TEST(BatchGenerator, AFullQueueRefuses) {
  BatchGenerator generator(tiny_model(tiny_config("llama"), kRoom),
                           {.slots = 1, .max_waiting = 3, .max_waiting_tokens = 50});
  const auto gate = std::make_shared<Gate>();
  const auto send = [&](std::size_t length, const std::shared_ptr<GenerationListener>& listener) {
    return generator.submit({.prompt = text(3, length), .max_new_tokens = 2}, listener).has_value();
  };
  ASSERT_TRUE(send(5, gate));
  gate->wait_until_entered();
  std::vector<std::shared_ptr<Collector>> collectors;
  for (int i = 0; i < 4; ++i) collectors.push_back(std::make_shared<Collector>());
  EXPECT_TRUE(send(20, collectors[0]));
  EXPECT_TRUE(send(20, collectors[1]));
  EXPECT_FALSE(send(20, collectors[2])) << "too many tokens";
  EXPECT_TRUE(send(5, collectors[2]));
  EXPECT_FALSE(send(1, collectors[3])) << "too many requests";
  EXPECT_EQ(generator.stats().waiting, 3);
  EXPECT_EQ(generator.stats().rejected, 2);
  gate->open();
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(collectors[static_cast<std::size_t>(i)]->wait().new_tokens, 2);
}

TEST(BatchGenerator, RefusesWhatCanNeverBeServed) {
  StepRoom room = kRoom;
  room.num_blocks = 4;
  BatchGenerator generator(tiny_model(tiny_config("llama"), room), {});
  EXPECT_EQ(generator.max_tokens(), 64);
  const auto refused = [&](GenerationRequest request) {
    EXPECT_THROW(generator.submit(std::move(request), std::make_shared<Collector>()), Error);
  };
  refused({.prompt = {}, .max_new_tokens = 1});
  refused({.prompt = {1, 61}, .max_new_tokens = 1});
  refused({.prompt = {-1}, .max_new_tokens = 1});
  refused({.prompt = text(1, 64), .max_new_tokens = 1});
  refused({.prompt = text(1, 65), .max_new_tokens = 0});
  GenerationRequest penalised = {.prompt = {1}, .max_new_tokens = 1};
  penalised.changes.repetition_penalty = 1e-40;
  refused(std::move(penalised));
  GenerationRequest cut = {.prompt = {1}, .max_new_tokens = 1};
  cut.changes.min_p = 2;
  refused(std::move(cut));
  refused({.prompt = {1}, .max_new_tokens = -1});
  GenerationRequest adapted = {.prompt = {1}, .max_new_tokens = 1};
  adapted.adapter = "x";
  refused(std::move(adapted));
  const Answer longest = alone(generator, {.prompt = text(1, 63), .max_new_tokens = 9});
  EXPECT_EQ(longest.tokens.size(), 1U);
  EXPECT_EQ(longest.result.finish, Finish::kLength);
}

TEST(BatchGenerator, EndsAtAStopTokenWhichIsNotPassedOn) {
  BatchGenerator generator(tiny_model(tiny_config("llama"), kRoom), {});
  const Answer free = alone(generator, {.prompt = text(4, 9), .max_new_tokens = 20});
  const std::int32_t stop = free.tokens[6].token;
  GenerationRequest stopped = {.prompt = text(4, 9), .max_new_tokens = 20};
  stopped.stop_tokens = {stop};
  const Answer answer = alone(generator, std::move(stopped));
  EXPECT_EQ(answer.result.finish, Finish::kStop);
  EXPECT_EQ(answer.result.stop_token, stop);
  ASSERT_LE(answer.tokens.size(), 6U);
  for (const TokenResult& token : answer.tokens) EXPECT_NE(token.token, stop);

  const auto enough = std::make_shared<Collector>();
  enough->stop_after(3);
  generator.submit({.prompt = text(4, 9), .max_new_tokens = 20}, enough);
  EXPECT_EQ(enough->wait().finish, Finish::kStop);
  EXPECT_EQ(enough->tokens().size(), 3U);
}

TEST(BatchGenerator, APromptAloneHasLogProbabilitiesAndNoToken) {
  BatchGenerator generator(tiny_model(tiny_config("llama"), kRoom), {});
  GenerationRequest scored = {.prompt = text(4, 50), .max_new_tokens = 0};
  scored.prompt_logprobs = true;
  scored.top_logprobs = 2;
  const Answer answer = alone(generator, std::move(scored));
  EXPECT_TRUE(answer.tokens.empty());
  ASSERT_EQ(answer.prompt.size(), 49U);
  for (std::size_t i = 0; i < 49; ++i) {
    EXPECT_EQ(answer.prompt[i].token, text(4, 50)[i + 1]);
    EXPECT_LT(answer.prompt[i].logprob, 0);
    ASSERT_EQ(answer.prompt[i].top.size(), 2U);
    EXPECT_GE(answer.prompt[i].top[0].second, answer.prompt[i].top[1].second);
    EXPECT_GE(answer.prompt[i].top[0].second, answer.prompt[i].logprob);
  }
}

// Says something, and then fails.
class Thrower final : public GenerationListener {
 public:
  bool on_token(const TokenResult& /*token*/) override {
    if (++count_ == 3) throw std::runtime_error("no more room");
    return true;
  }
  void on_end(const GenerationResult& result) override { ended_.set_value(result.finish); }
  Finish wait() { return ended_.get_future().get(); }

 private:
  int count_ = 0;
  std::promise<Finish> ended_;
};

TEST(BatchGenerator, AListenerThatThrowsEndsItsRequestAlone) {
  BatchGenerator generator(tiny_model(tiny_config("llama"), kRoom), {});
  const auto thrower = std::make_shared<Thrower>();
  const auto other = std::make_shared<Collector>();
  generator.submit({.prompt = text(4, 9), .max_new_tokens = 20}, other);
  generator.submit({.prompt = text(5, 9), .max_new_tokens = 20}, thrower);
  EXPECT_EQ(thrower->wait(), Finish::kFailed);
  EXPECT_EQ(other->wait().new_tokens, 20);
  EXPECT_EQ(generator.stats().failed, 1);
}

TEST(BatchGenerator, NumbersOfTheModelThatAreNoneFailTheRequest) {
  auto model = tiny_model(tiny_config("llama"), kRoom);
  model->store().params().back()->value.data<float>()[0] = std::nanf("");
  BatchGenerator generator(std::move(model), {});
  const Answer answer = alone(generator, {.prompt = text(4, 9), .max_new_tokens = 20});
  EXPECT_EQ(answer.result.finish, Finish::kFailed);
  EXPECT_NE(answer.result.error, "");
  GenerationRequest scored = {.prompt = text(4, 9), .max_new_tokens = 0};
  scored.prompt_logprobs = true;
  EXPECT_EQ(alone(generator, std::move(scored)).result.finish, Finish::kFailed);
}

TEST(BatchGenerator, EmbeddingsDoNotDependOnPieces) {
  const nn::ModelConfig config = tiny_config("llama");
  const auto embedded = [](BatchGenerator& generator, Pooling pooling) {
    GenerationRequest request = {.prompt = text(4, 50), .max_new_tokens = 0};
    request.pooling = pooling;
    return alone(generator, std::move(request)).result.embedding;
  };
  StepRoom small = kRoom;
  small.max_rows = 7;
  BatchGenerator whole(tiny_model(config, {160, 64, 20}), {});
  BatchGenerator pieces(tiny_model(config, small), {});
  for (const Pooling pooling : {Pooling::kMean, Pooling::kLast}) {
    const std::vector<float> expected = embedded(whole, pooling);
    EXPECT_EQ(expected.size(), 24U);
    EXPECT_EQ(embedded(pieces, pooling), expected);
    EXPECT_EQ(embedded(pieces, pooling), expected) << "with all of it in the cache";
  }
  EXPECT_EQ(pieces.stats().blocks_kept, 0) << "nobody could find them";
}

TEST(BatchGenerator, AMeanIsThatOfTheHiddenStatesOfAllTokens) {
  BatchGenerator generator(tiny_model(tiny_config("llama"), kRoom), {});
  const auto embedded = [&](std::size_t length, Pooling pooling) {
    GenerationRequest request = {.prompt = text(4, length), .max_new_tokens = 0};
    request.pooling = pooling;
    return alone(generator, std::move(request)).result.embedding;
  };
  const std::vector<float> mean = embedded(3, Pooling::kMean);
  std::vector<double> sum(mean.size(), 0);
  for (std::size_t length = 1; length <= 3; ++length) {
    const std::vector<float> last = embedded(length, Pooling::kLast);
    for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += static_cast<double>(last[c]);
  }
  for (std::size_t c = 0; c < sum.size(); ++c) {
    EXPECT_EQ(mean[c], static_cast<float>(sum[c] / 3));
  }
}

// As likely as the likeliest is that one alone, at any temperature.
TEST(BatchGenerator, MinPOfOneIsGreedy) {
  BatchGenerator generator(tiny_model(tiny_config("llama"), kRoom), {});
  GenerationRequest greedy = {.prompt = text(4, 9), .max_new_tokens = 40};
  greedy.sampling.temperature = 0;
  GenerationRequest cut = {.prompt = text(4, 9), .max_new_tokens = 40};
  cut.sampling.temperature = 1;
  cut.changes.min_p = 1;
  EXPECT_TRUE(
      same(alone(generator, std::move(cut)).tokens, alone(generator, std::move(greedy)).tokens));
}

// Allows even tokens alone, five of them.
class EvenTokens final : public TokenConstraint {
 public:
  void mask(std::span<std::uint64_t> allowed) override {
    for (std::uint64_t& word : allowed) word &= 0x5555555555555555;
  }
  void accept(std::int32_t token) override {
    EXPECT_EQ(token % 2, 0);
    ++count_;
  }
  bool is_over() const override { return count_ == 5; }

 private:
  int count_ = 0;
};

TEST(BatchGenerator, AConstraintChoosesAmongWhatItAllows) {
  BatchGenerator generator(tiny_model(tiny_config("llama"), kRoom), {});
  GenerationRequest constrained = {.prompt = text(4, 9), .max_new_tokens = 20};
  constrained.constraint = std::make_unique<EvenTokens>();
  const Answer answer = alone(generator, std::move(constrained));
  EXPECT_EQ(answer.tokens.size(), 5U);
  EXPECT_EQ(answer.result.finish, Finish::kStop);
}

TEST(BatchGenerator, APromptThatBeginsAlikeIsComputedOncePerKey) {
  BatchGenerator generator(tiny_model(tiny_config("llama"), kRoom), {});
  const auto cached = [&](const char* key) {
    GenerationRequest request = {.prompt = text(4, 100), .max_new_tokens = 3};
    request.cache_key = key;
    return alone(generator, std::move(request)).result.cached_tokens;
  };
  EXPECT_EQ(cached("a"), 0);
  EXPECT_EQ(cached("a"), 96);
  EXPECT_EQ(cached("b"), 0);
}

TEST(BatchGenerator, ANewModelServesWhatBeginsAfterIt) {
  const nn::ModelConfig config = tiny_config("llama");
  const auto other_model = [&] {
    auto model = tiny_model(config, kRoom);
    model->initialise(6);
    return model;
  };
  const auto request = [] {
    GenerationRequest request = {.prompt = text(4, 40), .max_new_tokens = 60};
    request.sampling.temperature = 0;
    return request;
  };
  BatchGenerator first(tiny_model(config, kRoom), {});
  BatchGenerator second(other_model(), {});
  const Answer of_first = alone(first, request());
  const Answer of_second = alone(second, request());
  ASSERT_FALSE(same(of_first.tokens, of_second.tokens));

  BatchGenerator generator(tiny_model(config, kRoom), {.slots = 2, .version = "one"});
  const auto begun = std::make_shared<Collector>();
  const auto gate = std::make_shared<Gate>();
  generator.submit(request(), begun);
  generator.submit({.prompt = text(1, 3), .max_new_tokens = 2}, gate);
  gate->wait_until_entered();
  const auto in_queue = std::make_shared<Collector>();
  generator.submit(request(), in_queue);
  EXPECT_EQ(generator.version(""), "one");
  EXPECT_TRUE(generator.replace_model(other_model(), "two"));
  EXPECT_EQ(generator.version(""), "two");
  EXPECT_FALSE(generator.replace_model(other_model(), "three")) << "two still waits";
  EXPECT_TRUE(generator.is_replacing());
  gate->open();
  const Answer late = alone(generator, request());
  EXPECT_EQ(answer_of(*in_queue).result.version, "one");
  const Answer early = answer_of(*begun);
  EXPECT_TRUE(same(early.tokens, of_first.tokens));
  EXPECT_EQ(early.result.version, "one");
  EXPECT_TRUE(same(late.tokens, of_second.tokens));
  EXPECT_EQ(late.result.version, "two");
  EXPECT_EQ(late.result.cached_tokens, 0) << "keys and values of the old model";
  StepRoom smaller = kRoom;
  smaller.num_blocks = 8;
  EXPECT_THROW(generator.replace_model(tiny_model(config, smaller), "three"), Error);
}

TEST(BatchGenerator, ItsEndCancelsWhatIsUnderWay) {
  const auto running = std::make_shared<Collector>();
  const auto waiting = std::make_shared<Collector>();
  {
    BatchGenerator generator(tiny_model(tiny_config("llama"), kRoom), {.slots = 1});
    generator.submit({.prompt = text(4, 9), .max_new_tokens = 150}, running);
    generator.submit({.prompt = text(4, 9), .max_new_tokens = 150}, waiting);
    running->wait_for_tokens(1);
  }
  EXPECT_EQ(running->ends(), 1);
  EXPECT_EQ(waiting->wait().finish, Finish::kCancelled);
}

}  // namespace
}  // namespace atl::serve
