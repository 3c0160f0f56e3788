// The Runner on schedules with several micro-batches in flight: slots, planned memory and order.

#include "atoll/parallel/runner/runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "atoll/nn/models/family.h"
#include "atoll/ops/testing.h"
#include "atoll/parallel/schedule/schedules.h"
#include "atoll/parallel/schedule/simulate_pipeline.h"
#include "atoll/parallel/store/store_single.h"

namespace atl::parallel {
namespace {

constexpr std::int64_t kMicroBatches = 3;
constexpr std::int64_t kBatch = 2;
constexpr std::int64_t kLength = 33;

// A head of its own: a tied one adds to the embedding's gradient in forward, so that there the
// order of additions is the schedule's.
nn::ModelConfig small_model() {
  nn::ModelConfig config;
  config.family = "llama";
  config.vocab_size = 101;
  config.hidden_size = 24;
  config.num_layers = 3;
  config.heads = {.num_heads = 3, .num_kv_heads = 1, .head_dim = 8};
  config.intermediate_size = 40;
  config.max_positions = kLength;
  config.initializer_range = 0.3;
  return config;
}

struct Outcome {
  double loss = 0;
  std::vector<std::byte> grads;
  std::size_t bytes = 0;  // planned
};

std::vector<Action> one_by_one(std::size_t num_stages) {
  return schedule_sequential(num_stages);
}

// Trains on all micro-batches by lists that `generator` makes, as many at a time as a list has.
template <typename Generator>
Outcome train(Generator&& generator, nn::RecomputeMode recompute) {
  test::TestRun run(2, 64);
  const auto model = nn::build_model(small_model(), {.recompute = recompute, .dropout = 0.1});
  SingleStore store(*model, true);
  Runner runner(*model, store, Use::kTrain, kBatch, kLength,
                alone(generator(model->stages.size())));
  MemoryPlan plan;
  store.request(plan);
  runner.request(plan);
  plan.place();
  const Arena arena(*run.device, plan);
  store.bind(arena);
  runner.bind(arena);
  store.initialise(run, 5);
  run.run.seed = 9;
  run.run.loss_scale = 1.0 / (kMicroBatches * kBatch * kLength);
  std::vector<test::OwnedTensor<std::int32_t>> tokens, targets;
  std::vector<Batch> batches;
  for (std::uint64_t i = 0; i < kMicroBatches; ++i) {
    tokens.push_back(test::random_tokens({kBatch, kLength}, 101, 2 * i));
    targets.push_back(test::random_tokens({kBatch, kLength}, 101, 2 * i + 1));
  }
  for (std::size_t i = 0; i < kMicroBatches; ++i) {
    batches.push_back({tokens[i], targets[i], static_cast<std::int64_t>(i) * kBatch});
  }
  Outcome outcome = {.bytes = plan.total_bytes()};
  const auto at_once = static_cast<std::size_t>(runner.schedule().num_micro_batches());
  for (std::size_t i = 0; i < batches.size(); i += at_once) {
    outcome.loss += runner.train(run, std::span(batches).subspan(i, at_once));
  }
  const auto* grads = static_cast<const std::byte*>(store.grads().raw());
  outcome.grads.assign(grads, grads + store.grads().bytes());
  return outcome;
}

// F and B in turn, each W as many micro-batches late as `delay`.
std::vector<Action> delayed_weights(std::size_t num_stages, std::int64_t delay) {
  using Kind = ChunkPass::Kind;
  std::vector<ChunkPass> passes;
  for (std::int64_t i = 0; i < kMicroBatches + delay; ++i) {
    if (i < kMicroBatches) passes.push_back({Kind::kForward, 0, i});
    if (i < kMicroBatches) passes.push_back({Kind::kBackwardInput, 0, i});
    if (i >= delay) passes.push_back({Kind::kBackwardWeight, 0, i - delay});
  }
  return chunk_actions(whole_model(num_stages, kMicroBatches), 0, passes);
}

std::vector<Action> gpipe(std::size_t num_stages) {
  return schedule_gpipe(whole_model(num_stages, kMicroBatches), 0);
}

TEST(Runner, NoScheduleChangesABit) {
  for (const nn::RecomputeMode recompute : {nn::RecomputeMode::kNone, nn::RecomputeMode::kFull}) {
    const Outcome expected = train(one_by_one, recompute);
    const auto expect_same = [&](const char* name, const Outcome& outcome) {
      SCOPED_TRACE(name);
      EXPECT_EQ(outcome.loss, expected.loss);
      EXPECT_TRUE(outcome.grads == expected.grads);
    };
    expect_same("sequential",
                train([](std::size_t n) { return schedule_sequential(n, 3); }, recompute));
    expect_same("gpipe", train(gpipe, recompute));
    for (const std::int64_t delay : {0, 1, 2}) {
      expect_same("delayed weights",
                  train([&](std::size_t n) { return delayed_weights(n, delay); }, recompute));
    }
  }
}

TEST(Runner, MicroBatchesInFlightTakeMemory) {
  const std::size_t one = train(one_by_one, nn::RecomputeMode::kNone).bytes;
  const std::size_t all = train(gpipe, nn::RecomputeMode::kNone).bytes;
  EXPECT_GT(all, one * 3 / 2);
}

TEST(Runner, OfOneRankRefusesTransfers) {
  const Pipeline pipeline = {2, 1, {0, 2, 4}};
  EXPECT_THAT([&] { alone(schedule_1f1b(pipeline, 0)); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("no peer to send output")));
}

TEST(Runner, TheHeadMakesItsGradientsInForward) {
  const auto model = nn::build_model(small_model(), {});
  SingleStore store(*model, true);
  const Runner runner(*model, store, Use::kTrain, kBatch, kLength);
  const std::size_t head = model->stages.size() - 1;
  for (const StagePass& pass : runner.schedule().passes()) {
    const bool makes = pass.kind == PassKind::kBackward || pass.stage == head;
    EXPECT_EQ(pass.makes_gradients, makes) << pass.number;
  }
}

}  // namespace
}  // namespace atl::parallel
