// Memory as planned: what a run takes from the device, and what it takes beside that.

#include "atoll/train/step/state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "atoll/train/testing.h"

namespace {
std::atomic<std::int64_t> allocations = 0;
}  // namespace

// Counts what this program takes from the heap through C++. Not inlined: the compiler would take
// new and free for a pair that does not match.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* data = std::malloc(bytes == 0 ? 1 : bytes)) return data;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void operator delete(void* data) noexcept {
  std::free(data);
}
[[gnu::noinline]] void operator delete(void* data, std::size_t) noexcept {
  std::free(data);
}

namespace atl::train {
namespace {

using testing::Bench;
using ::testing::HasSubstr;

StateOptions tiny(const std::string& family) {
  return {.model = testing::tiny_model(family), .micro_batch = 4, .context = 16};
}

// The CPU, which says what is asked of it.
class CountingDevice final : public Device {
 public:
  DeviceKind kind() const override { return cpu_->kind(); }
  std::string name() const override { return cpu_->name(); }
  std::size_t total_memory() const override { return cpu_->total_memory(); }
  void* allocate(std::size_t bytes) override {
    asked.push_back(bytes);
    return cpu_->allocate(bytes);
  }
  void deallocate(void* data, std::size_t bytes) noexcept override {
    cpu_->deallocate(data, bytes);
  }
  void* allocate_host(std::size_t bytes) override {
    ++asked_of_host;
    return cpu_->allocate_host(bytes);
  }
  ThreadPool& threads() override { return cpu_->threads(); }

  std::vector<std::size_t> asked;
  int asked_of_host = 0;

 private:
  std::unique_ptr<Device> cpu_ = open_cpu(2);
};

TEST(TrainState, TakesThePlannedBytesOnceAndNothingBefore) {
  for (const char* family : {"llama", "gpt2"}) {
    CountingDevice device;
    TrainState state(tiny(family));
    EXPECT_TRUE(device.asked.empty());
    state.allocate(device);
    EXPECT_EQ(device.asked, std::vector<std::size_t>{state.memory().total_bytes()});
    Stream stream(device);
    auto tokens = test::random_tokens({4, 16}, 61, 1);
    atl::Run run = {.stream = &stream};
    state.store().initialise(run, 1);
    const auto next = [&] { return Batch{tokens, tokens, 0}; };
    EXPECT_TRUE(take_step(state, stream, {.lr = 0.01}, next).taken());
    EXPECT_EQ(device.asked.size(), 1U) << "a step takes no more";
    EXPECT_EQ(device.asked_of_host, 1);
  }
}

TEST(TrainState, HoldsParametersGradientsAndTwoMoments) {
  TrainState state(tiny("llama"));
  const std::size_t flat = state.store().flat().bytes();
  EXPECT_EQ(state.memory().peak_bytes("parameters"), flat);
  EXPECT_EQ(state.memory().peak_bytes("gradients"), flat);
  EXPECT_EQ(state.memory().peak_bytes("optimizer"), 2 * flat);
  StateOptions evaluation = tiny("llama");
  evaluation.training = false;
  const TrainState forward_only(evaluation);
  EXPECT_EQ(forward_only.memory().peak_bytes("parameters"), flat);
  EXPECT_EQ(forward_only.memory().peak_bytes("gradients"), 0U);
  EXPECT_EQ(forward_only.memory().peak_bytes("optimizer"), 0U);
  EXPECT_LT(forward_only.memory().peak_bytes("activations"),
            state.memory().peak_bytes("activations"));
}

TEST(TrainState, RecomputeLowersThePlan) {
  StateOptions options = tiny("llama");
  options.model.num_layers = 8;
  const TrainState kept(options);
  options.build.recompute = nn::RecomputeMode::kFull;
  const TrainState again(options);
  EXPECT_LT(again.memory().peak_bytes("activations"), kept.memory().peak_bytes("activations") / 2);
  EXPECT_LT(again.memory().total_bytes(), kept.memory().total_bytes());
}

TEST(TrainState, DescribesItsMemoryByGroup) {
  const std::string text = describe_memory(TrainState(tiny("llama")).memory());
  for (const char* group : {"parameters", "gradients", "optimizer", "activations", "total"}) {
    EXPECT_THAT(text, HasSubstr(group));
  }
}

// The heap is not quite silent: oneDNN's calls and a few views make small objects. What must hold
// is that they do not grow with steps and stay apart from the model's size.
TEST(TrainState, ALaterStepAllocatesNoMoreThanTheOneBefore) {
  Bench bench(tiny("llama"));
  const auto count = [&](std::int64_t step) {
    const std::int64_t before = allocations;
    bench.step({.step = step, .lr = 0.01});
    return allocations - before;
  };
  count(0);
  const std::int64_t second = count(1);
  RecordProperty("heap_allocations_a_step", static_cast<int>(second));
  for (std::int64_t step = 2; step < 6; ++step) EXPECT_EQ(count(step), second);
}

}  // namespace
}  // namespace atl::train
