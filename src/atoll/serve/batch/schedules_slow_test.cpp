// A thousand random schedules: whatever arrives when, beside whom, in which room and on how many
// threads, each request gets the tokens and log-probabilities that it gets alone.

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "atoll/serve/batch/batch_testing.h"

namespace atl::serve {
namespace {

using test::Collector;
using test::tiny_config;
using test::tiny_model;

constexpr std::uint64_t kKinds = 48;

GenerationRequest request(std::uint64_t kind) {
  const RngStream random(kind, RngPurpose::kSynthetic, 2);
  const auto draw = [&](std::uint64_t i, std::uint32_t below) { return random.word(i) % below; };
  GenerationRequest request;
  const std::uint64_t source = kind % 3 == 0 ? 99 : kind;  // a third begin alike
  const RngStream words(source, RngPurpose::kSynthetic, 3);
  for (std::uint64_t i = 0; i < 1 + draw(0, 90); ++i) {
    request.prompt.push_back(static_cast<std::int32_t>(words.word(i) % test::kTinyVocab));
  }
  request.max_new_tokens = 1 + draw(1, 40);
  request.sampling = {.temperature = kind % 4 == 0 ? 0.0 : 0.9,
                      .top_k = kind % 5 == 0 ? 8 : 0,
                      .top_p = kind % 7 == 0 ? 0.9 : 1.0,
                      .seed = kind};
  request.top_logprobs = static_cast<int>(kind % 3) - 1;
  request.prompt_logprobs = kind % 13 == 5;
  if (kind % 6 == 1) request.changes = {.min_p = 0.01, .frequency_penalty = 0.1};
  return request;
}

std::vector<TokenResult> tokens_alone(const nn::ModelConfig& config, std::uint64_t kind) {
  BatchGenerator generator(tiny_model(config, {160, 64, 10}, 1),
                           {.slots = 1, .rows_with_guesses = 0});
  const auto collector = std::make_shared<Collector>();
  generator.submit(request(kind), collector);
  collector->wait();
  return collector->tokens();
}

bool same(const std::vector<TokenResult>& a, const std::vector<TokenResult>& b) {
  return std::ranges::equal(a, b, [](const TokenResult& x, const TokenResult& y) {
    return x.token == y.token && x.logprob == y.logprob && x.top == y.top;
  });
}

// Requests of one schedule, some of which are cancelled on the way.
void run_schedule(std::uint64_t number, const nn::ModelConfig& config,
                  const std::vector<std::vector<TokenResult>>& expected) {
  const RngStream random(number, RngPurpose::kSynthetic, 4);
  std::uint64_t draws = 0;
  const auto draw = [&](std::uint32_t below) { return random.word(draws++) % below; };
  const std::int64_t slots = 1 + draw(16);
  const StepRoom room = {160, slots + draw(40), 10 + draw(30)};
  BatchGenerator generator(tiny_model(config, room, 1 + static_cast<int>(draw(3))),
                           {.slots = slots,
                            .rows_with_guesses = draw(10),
                            .prompt_rows_beside_answers = 1 + static_cast<std::int64_t>(draw(40))});
  struct Sent {
    std::uint64_t kind, id;
    bool cancelled;
    std::shared_ptr<Collector> collector;
  };
  std::vector<Sent> sent;
  for (std::uint32_t i = 0; i < 6 + draw(14); ++i) {
    Sent one = {draw(kKinds), 0, false, std::make_shared<Collector>()};
    GenerationRequest wanted = request(one.kind);
    wanted.cache_key = draw(2) == 0 ? "a" : "b";
    one.id = generator.submit(std::move(wanted), one.collector).value();
    sent.push_back(one);
    if (draw(4) == 0)
      sent[draw(static_cast<std::uint32_t>(sent.size()))].collector->wait_for_tokens(draw(9));
    if (draw(6) == 0) {
      Sent& other = sent[draw(static_cast<std::uint32_t>(sent.size()))];
      other.cancelled = true;
      generator.cancel(other.id);
    }
  }
  for (const Sent& one : sent) {
    const GenerationResult result = one.collector->wait();
    const std::vector<TokenResult>& tokens = one.collector->tokens();
    const std::vector<TokenResult>& whole = expected[one.kind];
    EXPECT_EQ(one.collector->ends(), 1);
    if (result.finish == Finish::kCancelled) {
      EXPECT_TRUE(one.cancelled);
      ASSERT_LE(tokens.size(), whole.size());
      EXPECT_TRUE(same(tokens, {whole.begin(), whole.begin() + std::ssize(tokens)}));
    } else {
      EXPECT_TRUE(same(tokens, whole)) << "schedule " << number << ", request " << one.kind;
    }
  }
  EXPECT_EQ(generator.stats().blocks_in_use, 0) << "schedule " << number;
}

TEST(Schedules, EveryRequestGetsWhatItGetsAlone) {
  for (const char* family : {"llama", "gpt2", "mistral", "mixtral"}) {
    const nn::ModelConfig config = tiny_config(family);
    std::vector<std::vector<TokenResult>> expected;
    for (std::uint64_t kind = 0; kind < kKinds; ++kind) {
      expected.push_back(tokens_alone(config, kind));
    }
    for (std::uint64_t number = 0; number < 250; ++number) {
      run_schedule(number, config, expected);
      ASSERT_FALSE(HasFailure()) << family;
    }
  }
}

}  // namespace
}  // namespace atl::serve
