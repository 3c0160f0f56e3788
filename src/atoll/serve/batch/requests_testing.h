#pragma once

// What tests of a BatchGenerator ask it, and how they compare what they get.

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "atoll/base/rng.h"
#include "atoll/serve/batch/batch_testing.h"

namespace atl::test {

inline constexpr serve::StepRoom kRoom = {.max_positions = 160, .max_rows = 24, .num_blocks = 40};

/// Tokens, the same for the same seed.
inline std::vector<std::int32_t> text(std::uint64_t seed, std::size_t length) {
  const RngStream random(seed, RngPurpose::kSynthetic, 1);
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < length; ++i) {
    tokens.push_back(static_cast<std::int32_t>(random.word(i) % kTinyVocab));
  }
  return tokens;
}

/// Requests of many kinds; some begin alike.
inline serve::GenerationRequest request(std::uint64_t i) {
  serve::GenerationRequest request;
  request.prompt = text(i % 5 < 2 ? 1 : i, 1 + i * 13 % 70);
  request.max_new_tokens = 1 + static_cast<std::int64_t>(i * 7 % 30);
  request.sampling = {.temperature = i % 3 == 0 ? 0.0 : 1.0,
                      .top_k = i % 4 == 0 ? 5 : 0,
                      .top_p = i % 7 == 0 ? 0.8 : 1.0,
                      .seed = i};
  request.top_logprobs = static_cast<int>(i % 3) - 1;
  request.prompt_logprobs = i % 11 == 3;
  request.cache_key = i % 2 == 0 ? "a" : "b";
  if (i % 6 == 1) {
    request.changes = {.min_p = 0.02,
                       .presence_penalty = 0.3,
                       .frequency_penalty = 0.2,
                       .repetition_penalty = 1.1,
                       .bias = {{3, 1.5}, {7, -100}}};
  }
  return request;
}

/// What a request got.
struct Answer {
  std::vector<serve::TokenResult> tokens, prompt;
  serve::GenerationResult result;
};

/// What a request got, once it has ended.
inline Answer answer_of(Collector& collector) {
  const serve::GenerationResult result = collector.wait();
  return {collector.tokens(), collector.prompt(), result};
}

/// The same of a request that is submitted now.
inline Answer alone(serve::BatchGenerator& generator, serve::GenerationRequest request) {
  const auto collector = std::make_shared<Collector>();
  EXPECT_TRUE(generator.submit(std::move(request), collector).has_value());
  return answer_of(*collector);
}

/// Whether tokens, log-probabilities and those beside them have the same bits.
inline bool same(const std::vector<serve::TokenResult>& a,
                 const std::vector<serve::TokenResult>& b) {
  return std::ranges::equal(a, b, [](const serve::TokenResult& x, const serve::TokenResult& y) {
    return x.token == y.token && x.logprob == y.logprob && x.top == y.top;
  });
}

/// A prompt that comes again, with nothing else beside it, is there already.
inline void expect_cached(serve::BatchGenerator& generator, const std::string& adapter) {
  std::int64_t cached = 0;
  for (int i = 0; i < 2; ++i) {
    serve::GenerationRequest made = {
        .prompt = text(77, 40), .max_new_tokens = 1, .adapter = adapter};
    cached = alone(generator, std::move(made)).result.cached_tokens;
  }
  EXPECT_GE(cached, serve::StepModel::kBlockSize);
}

/// Holds the engine's thread until told to go on.
class Gate final : public serve::GenerationListener {
 public:
  bool on_token(const serve::TokenResult& /*token*/) override {
    std::unique_lock lock(mutex_);
    entered_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
    return true;
  }
  void on_end(const serve::GenerationResult& /*result*/) override {}
  void wait_until_entered() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return entered_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool entered_ = false, open_ = false;
};

}  // namespace atl::test
