// What the sanitizers see of kernels that break the rules, where the build has them. The shim is
// told to leave races to them: it would end the kernel first.

#include "atoll/device/fake_cuda/sanitizers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "atoll/device/cuda/kernel.h"
#include "atoll/device/fake_cuda/run_kernel.h"

namespace atl::cuda {
namespace {

using fake_cuda::Order;
using fake_cuda::run_kernel;

enum class Mistake { kNone, kNoBarrier, kNoSecondBarrier, kNoWarpMeeting, kShuffleForAMeeting };

// Threads hand numbers on through shared memory, over the block and within a warp, twice over.
template <Mistake kMistake>
struct HandsOn {
  static constexpr const char* kName = "hands_on";
  static constexpr int kMaxThreads = 64;
  Global<std::int32_t> y;

  ATOLL_DEVICE void operator()() const {
    const Shared<std::int32_t> box = shared_memory<std::int32_t>(0, 128);
    for (int round = 0; round < 2; ++round) {
      box.store(thread(), thread() + round);
      if (kMistake != Mistake::kNoBarrier) sync_block();
      const std::int32_t other = box.load(63 - thread());
      if (kMistake != Mistake::kNoSecondBarrier) sync_block();
      box.store(64 + thread(), other);
      if (kMistake == Mistake::kShuffleForAMeeting) {
        shuffle_xor(other, 1);
      } else if (kMistake != Mistake::kNoWarpMeeting) {
        sync_warp();
      }
      y.store(thread(), box.load(64 + (thread() ^ 1)));
    }
  }
};

template <typename Kernel>
void run(const Kernel& kernel, std::uint32_t blocks, std::uint32_t shared_bytes,
         std::uint64_t seed) {
  ThreadPool threads(2);
  run_kernel(threads, {.blocks_x = blocks, .threads = 64, .shared_bytes = shared_bytes}, kernel,
             Order{seed}, {.finds_races = false});
}

template <Mistake kMistake>
void hand_on() {
  std::vector<std::int32_t> y(64);
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    run(HandsOn<kMistake>{{y.data(), 64}}, 1, 512, seed);
  }
  EXPECT_EQ(y[0], 62 + 1);
}

// Without a barrier threads hand numbers on through the device's memory; or two blocks write there.
template <bool kOverBlocks>
struct ThroughGlobal {
  static constexpr const char* kName = "through_global";
  static constexpr int kMaxThreads = 64;
  Global<std::int32_t> x;
  Global<std::int32_t> y;

  ATOLL_DEVICE void operator()() const {
    if (kOverBlocks) return y.store((thread() + block_x()) % 64, thread());
    x.store(thread(), thread());
    y.store(thread(), x.load(63 - thread()));
  }
};

template <bool kOverBlocks>
void go_through_global() {
  std::vector<std::int32_t> x(64), y(64);
  run(ThroughGlobal<kOverBlocks>{{x.data(), 64}, {y.data(), 64}}, kOverBlocks ? 16 : 1, 0, 0);
}

class ShimDeathTest : public testing::Test {
 protected:
  ShimDeathTest() { testing::GTEST_FLAG(death_test_style) = "threadsafe"; }
};

// The code with which ThreadSanitizer ends a program in which it has found something.
constexpr int kFound = 66;
constexpr const char* kRace = "data race.*sanitizers_test.cpp:[0-9]+";

TEST_F(ShimDeathTest, ThreadSanitizerSeesBarriersThatAreNotThere) {
  if (!fake_cuda::kHasThreadSanitizer) GTEST_SKIP() << "the build is without ThreadSanitizer";
  const auto ends_with = [](int code) { return testing::ExitedWithCode(code); };
  EXPECT_EXIT((hand_on<Mistake::kNone>(), std::exit(0)), ends_with(0), "");
  EXPECT_EXIT((hand_on<Mistake::kNoBarrier>(), std::exit(0)), ends_with(kFound), kRace);
  EXPECT_EXIT((hand_on<Mistake::kNoSecondBarrier>(), std::exit(0)), ends_with(kFound), kRace);
  EXPECT_EXIT((hand_on<Mistake::kNoWarpMeeting>(), std::exit(0)), ends_with(kFound), kRace);
  EXPECT_EXIT((hand_on<Mistake::kShuffleForAMeeting>(), std::exit(0)), ends_with(kFound), kRace);
}

TEST_F(ShimDeathTest, ThreadSanitizerSeesRacesForTheDevicesMemory) {
  if (!fake_cuda::kHasThreadSanitizer) GTEST_SKIP() << "the build is without ThreadSanitizer";
  EXPECT_EXIT((go_through_global<false>(), std::exit(0)), testing::ExitedWithCode(kFound), kRace);
  EXPECT_EXIT((go_through_global<true>(), std::exit(0)), testing::ExitedWithCode(kFound), kRace);
}

// Past the block's shared memory, by a pointer that no check knows.
struct PastShared {
  static constexpr const char* kName = "past_shared";
  static constexpr int kMaxThreads = 64;

  ATOLL_DEVICE void operator()() const {
    const Shared<std::int32_t> box = shared_memory<std::int32_t>(0, 64);
    box.data[thread() + 1] = thread();
  }
};

TEST_F(ShimDeathTest, AddressSanitizerSeesAnAccessPastSharedMemory) {
  if (!fake_cuda::kHasAddressSanitizer) GTEST_SKIP() << "the build is without AddressSanitizer";
  EXPECT_DEATH(run(PastShared{}, 1, 256, 0), "AddressSanitizer.*sanitizers_test.cpp:[0-9]+");
  // Also where an earlier kernel had more.
  EXPECT_DEATH(
      {
        hand_on<Mistake::kNone>();
        run(PastShared{}, 1, 256, 0);
      },
      "AddressSanitizer.*sanitizers_test.cpp:[0-9]+");
}

}  // namespace
}  // namespace atl::cuda
