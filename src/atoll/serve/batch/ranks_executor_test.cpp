// Ranks that share each product serve what one rank serves.

#include "atoll/serve/batch/ranks_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>

#include "atoll/base/error.h"
#include "atoll/serve/batch/requests_testing.h"

namespace atl::serve {
namespace {

using test::Collector;
using test::kRoom;
using test::tiny_config;

constexpr std::uint64_t kRequests = 24;

std::unique_ptr<BatchGenerator> generator(const nn::ModelConfig& config, int num_ranks,
                                          Weights weights, const BatchOptions& options) {
  const auto open = [&](ModelRanks* ranks) {
    auto model = std::make_unique<StepModel>(open_cpu(1), config, weights, kRoom, StepLayers{},
                                             KeepStored{}, 0, ranks);
    model->initialise(5);
    return model;
  };
  if (num_ranks == 1) return std::make_unique<BatchGenerator>(open(nullptr), options);
  return std::make_unique<BatchGenerator>(
      std::make_unique<RanksExecutor>(
          num_ranks, [&](ModelRanks& ranks) { return open(&ranks); }, 0),
      options);
}

GenerationRequest request(std::uint64_t i) {
  GenerationRequest request = test::request(i);
  request.top_logprobs = 1;
  request.prompt_logprobs = i % 4 == 1;
  return request;
}

std::vector<std::shared_ptr<Collector>> together(BatchGenerator& generator) {
  std::vector<std::shared_ptr<Collector>> collectors;
  for (std::uint64_t i = 0; i < kRequests; ++i) {
    collectors.push_back(std::make_shared<Collector>());
    generator.submit(request(i), collectors.back());
  }
  for (const auto& collector : collectors) {
    EXPECT_EQ(collector->wait().finish, Finish::kLength) << collector->wait().error;
  }
  return collectors;
}

struct Case {
  std::string family;
  int num_ranks;
  Weights weights = Weights::kF32;
};

class RanksExecutorCases : public ::testing::TestWithParam<Case> {};

// Products have at most 96 terms of a size of about 1, and logits pass through 2 blocks of 6 of
// them: the order of sums moves them by less than this.
constexpr double kTolerance = 2 * 6 * 96 * 4 * std::numeric_limits<float>::epsilon();

TEST_P(RanksExecutorCases, MakesTheTokensOfOneRank) {
  const nn::ModelConfig config = tiny_config(GetParam().family);
  const Weights weights = GetParam().weights;
  const auto one = together(*generator(config, 1, weights, {.max_waiting = kRequests}));
  const auto shared =
      together(*generator(config, GetParam().num_ranks, weights, {.max_waiting = kRequests}));
  for (std::size_t i = 0; i < kRequests; ++i) {
    const std::vector<TokenResult>& a = one[i]->tokens();
    const std::vector<TokenResult>& b = shared[i]->tokens();
    ASSERT_EQ(a.size(), b.size()) << i;
    for (std::size_t t = 0; t < a.size(); ++t) {
      ASSERT_EQ(a[t].token, b[t].token) << "request " << i << ", token " << t;
      EXPECT_NEAR(a[t].logprob, b[t].logprob, kTolerance);
    }
    ASSERT_EQ(one[i]->prompt().size(), shared[i]->prompt().size());
    for (std::size_t t = 0; t < one[i]->prompt().size(); ++t) {
      EXPECT_NEAR(one[i]->prompt()[t].logprob, shared[i]->prompt()[t].logprob, kTolerance);
    }
  }
}

TEST_P(RanksExecutorCases, WhatRunsBesideARequestChangesNoBit) {
  const nn::ModelConfig config = tiny_config(GetParam().family);
  const auto busy = together(
      *generator(config, GetParam().num_ranks, GetParam().weights, {.max_waiting = kRequests}));
  const auto quiet = generator(config, GetParam().num_ranks, GetParam().weights,
                               {.slots = 1, .max_waiting = kRequests, .rows_with_guesses = 0});
  for (std::uint64_t i = 0; i < kRequests; ++i) {
    const auto alone = std::make_shared<Collector>();
    quiet->submit(request(i), alone);
    alone->wait();
    ASSERT_EQ(alone->tokens().size(), busy[i]->tokens().size());
    for (std::size_t t = 0; t < alone->tokens().size(); ++t) {
      EXPECT_EQ(alone->tokens()[t].token, busy[i]->tokens()[t].token);
      EXPECT_EQ(alone->tokens()[t].logprob, busy[i]->tokens()[t].logprob);
      EXPECT_EQ(alone->tokens()[t].top, busy[i]->tokens()[t].top);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, RanksExecutorCases,
                         ::testing::Values(Case{"llama", 2}, Case{"llama", 4}, Case{"gpt2", 2},
                                           Case{"gpt_neox", 2}, Case{"mistral", 4},
                                           Case{"mixtral", 2}, Case{"llama", 2, Weights::kBf16}),
                         [](const auto& info) {
                           return info.param.family + std::to_string(info.param.num_ranks) +
                                  (info.param.weights == Weights::kF32 ? "" : "Rounded");
                         });

TEST(RanksExecutor, PoolsTheHiddenStatesOfAllRows) {
  const nn::ModelConfig config = tiny_config("llama");
  const auto embedding = [&](int num_ranks) {
    GenerationRequest request = {.prompt = test::text(3, 50)};
    request.pooling = Pooling::kMean;
    const auto collector = std::make_shared<Collector>();
    const auto made = generator(config, num_ranks, Weights::kF32, {});
    made->submit(std::move(request), collector);
    return collector->wait().embedding;
  };
  const std::vector<float> one = embedding(1), two = embedding(2);
  ASSERT_EQ(one.size(), two.size());
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], two[i], kTolerance);
}

TEST(RanksExecutor, WhatCannotBeSharedIsRefused) {
  try {
    generator(tiny_config("llama"), 3, Weights::kF32, {});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("4 attention heads cannot be shared evenly"));
  }
}

TEST(RanksExecutor, AStepThatFailsEndsRequestsAndNobodyHangs) {
  const nn::ModelConfig config = tiny_config("llama");
  auto executor = std::make_unique<RanksExecutor>(
      2,
      [&](ModelRanks& ranks) {
        return std::make_unique<StepModel>(open_cpu(1), config, Weights::kF32, kRoom, StepLayers{},
                                           KeepStored{}, 0, &ranks);
      },
      0);
  // More rows than there is room for: a bug of the caller, on every rank.
  StepOrder order = {.number = 1};
  StepPiece piece;
  piece.tokens.assign(static_cast<std::size_t>(kRoom.max_rows) + 1, 1);
  piece.blocks = {0, 1, 2};
  order.pieces.push_back(piece);
  EXPECT_THROW(executor->begin(order), Error);
  order.pieces[0].tokens.resize(3);
  EXPECT_THROW(executor->begin(order), Error) << "it stays so";
}

}  // namespace
}  // namespace atl::serve
