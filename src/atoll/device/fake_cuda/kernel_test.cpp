// The shim itself: what kernels may rely on, and what it refuses. Each refusal is a mistake that a
// kernel here makes on purpose.

#include "atoll/device/cuda/kernel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/rng.h"
#include "atoll/device/fake_cuda/run_kernel.h"

namespace atl::cuda {
namespace {

using fake_cuda::Order;
using fake_cuda::run_kernel;
using fake_cuda::Traffic;
using testing::HasSubstr;

constexpr std::uint64_t kOrders = 8;

template <typename T>
Global<T> global(std::vector<T>& values) {
  return {values.data(), static_cast<std::int64_t>(values.size())};
}
template <typename T>
Global<const T> global_const(const std::vector<T>& values) {
  return {values.data(), static_cast<std::int64_t>(values.size())};
}

// What the kernel says when it is run in this order; empty: nothing.
template <typename Kernel>
std::string error_of(const LaunchShape& shape, const Kernel& kernel, std::uint64_t seed = 0) {
  ThreadPool threads(2);
  try {
    run_kernel(threads, shape, kernel, Order{seed});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::vector<float> random_values(std::size_t n) {
  const RngStream stream(1, RngPurpose::kSynthetic);
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = stream.uniform(i) - 0.5F;
  return values;
}

enum class Mistake { kNone, kNoBarrier, kNoSecondBarrier, kNoBound, kBarrierInBranch };

// y[block] = the sum of the block's part of x, by shuffles, then through shared memory, twice over.
template <Mistake kMistake>
struct BlockSum {
  static constexpr const char* kName = "block_sum";
  static constexpr int kMaxThreads = 256;
  Global<const float> x;
  Global<float> y;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t i = std::int64_t{block_x()} * num_threads() + thread();
    float sum = kMistake == Mistake::kNoBound || i < x.size ? x.load(i) : 0.0F;
    const Shared<float> sums = shared_memory<float>(0, 8);
    for (int round = 0; round < 2; ++round) {
      for (int mask = 16; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
      if (lane() == 0) sums.store(warp(), sum);
      if (kMistake == Mistake::kBarrierInBranch) {
        if (warp() == 0) sync_block();
      } else if (kMistake != Mistake::kNoBarrier) {
        sync_block();
      }
      sum = 0;
      for (int w = 0; w < num_threads() / 32; ++w) sum += sums.load(w);
      if (kMistake != Mistake::kNoSecondBarrier) sync_block();
    }
    if (thread() == 0) y.store(block_x(), sum);
  }
};

constexpr LaunchShape kSumShape = {.blocks_x = 3, .threads = 128, .shared_bytes = 32};

TEST(Shim, GivesTheSameBitsInEveryOrder) {
  ThreadPool threads(2);
  const std::vector<float> x = random_values(300);
  std::vector<float> first(3);
  for (std::uint64_t seed = 0; seed < kOrders; ++seed) {
    std::vector<float> y(3, NAN);
    run_kernel(threads, kSumShape, BlockSum<Mistake::kNone>{global_const(x), global(y)},
               Order{seed});
    if (seed == 0) first = y;
    EXPECT_EQ(y, first) << seed;
  }
  double sum = 0;
  for (int i = 0; i < 128; ++i) sum += 128.0 * x[static_cast<std::size_t>(i)];
  EXPECT_NEAR(first[0], sum, 1e-3);
}

TEST(Shim, CountsTheBytesThatMove) {
  ThreadPool threads(2);
  const std::vector<float> x = random_values(300);
  std::vector<float> y(3);
  const Traffic traffic =
      run_kernel(threads, kSumShape, BlockSum<Mistake::kNone>{global_const(x), global(y)}, Order{});
  EXPECT_EQ(traffic.read, 1200u);
  EXPECT_EQ(traffic.written, 12u);
}

template <Mistake kMistake>
std::string error_of_sum(std::uint64_t seed) {
  const std::vector<float> x = random_values(300);
  std::vector<float> y(3);
  return error_of(kSumShape, BlockSum<kMistake>{global_const(x), global(y)}, seed);
}

TEST(Shim, FindsAMissingBarrierInEveryOrder) {
  for (std::uint64_t seed = 0; seed < kOrders; ++seed) {
    EXPECT_THAT(error_of_sum<Mistake::kNoBarrier>(seed), HasSubstr("race")) << seed;
    // Nothing but the next round's write, before all have read, gives this one away.
    EXPECT_THAT(error_of_sum<Mistake::kNoSecondBarrier>(seed), HasSubstr("race")) << seed;
  }
}

TEST(Shim, FindsAnAccessOutsideAndNamesIt) {
  const std::string error = error_of_sum<Mistake::kNoBound>(0);
  EXPECT_THAT(error, HasSubstr("kernel block_sum, block (2, 0), thread 44, kernel_test.cpp:"));
  EXPECT_THAT(error, HasSubstr("elements 300 to 301 of 300 in the device's memory"));
}

TEST(Shim, FindsABarrierThatSomeThreadsMiss) {
  EXPECT_THAT(error_of_sum<Mistake::kBarrierInBranch>(0), HasSubstr("barrier"));
}

// One half of a warp shuffles where the other votes, or ends.
template <bool kEnds>
struct TornWarp {
  static constexpr const char* kName = "torn_warp";
  static constexpr int kMaxThreads = 32;
  Global<float> y;
  ATOLL_DEVICE void operator()() const {
    if (lane() < 16) {
      y.store(lane(), shuffle_xor(1.0F, 1));
    } else if (!kEnds) {
      y.store(lane(), ballot(true) != 0 ? 1.0F : 0.0F);
    }
  }
};

TEST(Shim, FindsLanesThatDoNotMeet) {
  std::vector<float> y(32);
  const LaunchShape one_warp = {.threads = 32};
  EXPECT_THAT(error_of(one_warp, TornWarp<false>{global(y)}),
              HasSubstr("is at ballot while lanes of its warp are at shuffle_xor"));
  EXPECT_THAT(error_of(one_warp, TornWarp<true>{global(y)}),
              HasSubstr("waits in shuffle_xor for threads that do not come: thread 16 has ended"));
}

// Lanes hand numbers on through shared memory, with and without sync_warp.
template <bool kSyncs>
struct ThroughShared {
  static constexpr const char* kName = "through_shared";
  static constexpr int kMaxThreads = 32;
  Global<std::int32_t> y;
  ATOLL_DEVICE void operator()() const {
    const Shared<std::int32_t> box = shared_memory<std::int32_t>(0, 32);
    box.store(lane(), lane() * lane());
    if (kSyncs) sync_warp();
    y.store(lane(), box.load(31 - lane()));
  }
};

TEST(Shim, AWarpMeetsBeforeItReadsWhatItsLanesWrote) {
  std::vector<std::int32_t> y(32);
  const LaunchShape shape = {.threads = 32, .shared_bytes = 128};
  EXPECT_EQ(error_of(shape, ThroughShared<true>{global(y)}), "");
  EXPECT_EQ(y[0], 31 * 31);
  EXPECT_EQ(y[31], 0);
  EXPECT_THAT(error_of(shape, ThroughShared<false>{global(y)}), HasSubstr("race"));
}

// Sixteen bytes a lane, copied behind its back.
template <bool kWaits>
struct CopiedAsync {
  static constexpr const char* kName = "copied_async";
  static constexpr int kMaxThreads = 32;
  Global<const float> x;
  Global<float> y;
  ATOLL_DEVICE void operator()() const {
    const Shared<float> box = shared_memory<float>(0, 256);
    copy_async<4>(box, 4 * lane(), x, 4 * lane());
    commit_copies();
    copy_async<4>(box, 128 + 4 * lane(), x, 4 * lane());
    commit_copies();
    if (kWaits) wait_copies<1>();
    sync_block();
    y.store(lane(), box.load(4 * (31 - lane())));
    wait_copies<0>();
  }
};

TEST(Shim, AnAsynchronousCopyArrivesWhenItIsWaitedFor) {
  const std::vector<float> x = random_values(128);
  std::vector<float> y(32);
  const LaunchShape shape = {.threads = 32, .shared_bytes = 1024};
  EXPECT_EQ(error_of(shape, CopiedAsync<true>{global_const(x), global(y)}), "");
  EXPECT_EQ(y[0], x[124]);
  EXPECT_THAT(error_of(shape, CopiedAsync<false>{global_const(x), global(y)}), HasSubstr("race"));
}

// Lanes read a place that is copied into anew, with and without a barrier in between.
template <bool kSyncs>
struct CopiedOver {
  static constexpr const char* kName = "copied_over";
  static constexpr int kMaxThreads = 32;
  Global<const float> x;
  Global<float> y;
  ATOLL_DEVICE void operator()() const {
    const Shared<float> box = shared_memory<float>(0, 128);
    copy_async<4>(box, 4 * lane(), x, 0, lane() > 0);  // lane 0's are zeroes
    commit_copies();
    wait_copies<0>();
    sync_block();
    y.store(lane(), box.load(4 * (31 - lane())));
    if (kSyncs) sync_block();
    copy_async<4>(box, 4 * lane(), x, 4);
    commit_copies();
    wait_copies<0>();
  }
};

TEST(Shim, AnAsynchronousCopyMayArriveAtOnce) {
  const std::vector<float> x = random_values(8);
  std::vector<float> y(32);
  const LaunchShape shape = {.threads = 32, .shared_bytes = 512};
  for (std::uint64_t seed = 0; seed < kOrders; ++seed) {
    EXPECT_EQ(error_of(shape, CopiedOver<true>{global_const(x), global(y)}, seed), "");
    EXPECT_EQ(y[0], x[0]);
    EXPECT_EQ(y[31], 0.0F);
    EXPECT_THAT(error_of(shape, CopiedOver<false>{global_const(x), global(y)}, seed),
                HasSubstr("race"));
  }
}

// Four matrices of 8 x 8 that lie one below the other, as they are and transposed.
struct Matrices {
  static constexpr const char* kName = "matrices";
  static constexpr int kMaxThreads = 32;
  Global<std::uint32_t> plain;
  Global<std::uint32_t> transposed;
  ATOLL_DEVICE void operator()() const {
    const Shared<std::uint16_t> box = shared_memory<std::uint16_t>(0, 256);
    for (int i = 0; i < 8; ++i) {
      box.store(8 * lane() + i, static_cast<std::uint16_t>(8 * lane() + i));
    }
    sync_warp();
    std::uint32_t m[4];
    load_matrices(m, box, 8 * lane());
    for (int i = 0; i < 4; ++i) plain.store(32 * i + lane(), m[i]);
    load_matrices_transposed(m, box, 8 * lane());
    for (int i = 0; i < 4; ++i) transposed.store(32 * i + lane(), m[i]);
  }
};

TEST(Shim, LoadsMatricesAsThePtxManualSays) {
  std::vector<std::uint32_t> plain(128), transposed(128);
  const LaunchShape shape = {.threads = 32, .shared_bytes = 512};
  EXPECT_EQ(error_of(shape, Matrices{global(plain), global(transposed)}), "");
  const auto pair = [](std::uint32_t low, std::uint32_t high) { return low | high << 16; };
  for (std::uint32_t i = 0; i < 128; ++i) {
    const std::uint32_t first = i / 32 * 64, row = i % 32 / 4, two = i % 4 * 2;
    EXPECT_EQ(plain[i], pair(first + row * 8 + two, first + row * 8 + two + 1)) << i;
    EXPECT_EQ(transposed[i], pair(first + two * 8 + row, first + (two + 1) * 8 + row)) << i;
  }
}

struct Unaligned {
  static constexpr const char* kName = "unaligned";
  static constexpr int kMaxThreads = 32;
  Global<const float> x;
  ATOLL_DEVICE void operator()() const { x.load<4>(1); }
};

TEST(Shim, FindsAWideAccessThatIsNotAligned) {
  const std::vector<float> x(64);
  EXPECT_THAT(error_of({.threads = 32}, Unaligned{global_const(x)}), HasSubstr("not aligned"));
}

struct Votes {
  static constexpr const char* kName = "votes";
  static constexpr int kMaxThreads = 64;
  Global<std::uint32_t> y;
  ATOLL_DEVICE void operator()() const {
    const std::uint32_t odd = ballot(lane() % 2 == 1);
    if (lane() == 0) y.store(warp(), odd);
    add_atomic(y, 2, 1);
    min_atomic(y, 3, static_cast<std::uint32_t>(100 + thread()));
    y.store(4 + thread(), static_cast<std::uint32_t>(shuffle(thread(), 7)));
  }
};

TEST(Shim, VotesAndAddsUp) {
  std::vector<std::uint32_t> y(68, 0);
  y[3] = 1000;
  EXPECT_EQ(error_of({.threads = 64}, Votes{global(y)}), "");
  EXPECT_EQ(y[0], 0xaaaaaaaaU);
  EXPECT_EQ(y[1], 0xaaaaaaaaU);
  EXPECT_EQ(y[2], 64u);
  EXPECT_EQ(y[3], 100u);
  EXPECT_EQ(y[4], 7u);
  EXPECT_EQ(y[4 + 63], 39u);
}

// d = a b, with a (16, 16) and b (16, 8) row by row, in f32 that bf16 holds exactly.
struct OneProduct {
  static constexpr const char* kName = "one_product";
  static constexpr int kMaxThreads = 32;
  Global<const float> a;
  Global<const float> b;
  Global<float> d;

  static std::uint32_t pair(float low, float high) {
    return std::bit_cast<std::uint32_t>(low) >> 16 |
           (std::bit_cast<std::uint32_t>(high) & 0xffff0000U);
  }
  ATOLL_DEVICE void operator()() const {
    const int row = lane() / 4, k = lane() % 4 * 2;
    std::uint32_t left[4], right[2];
    for (int i = 0; i < 4; ++i) {
      const int at = (row + i % 2 * 8) * 16 + k + i / 2 * 8;
      left[i] = pair(a.load(at), a.load(at + 1));
    }
    for (int i = 0; i < 2; ++i) {
      right[i] = pair(b.load((k + 8 * i) * 8 + row), b.load((k + 8 * i + 1) * 8 + row));
    }
    float sums[4] = {0, 0, 0, 0};
    mma_m16n8k16(sums, left, right[0], right[1]);
    for (int i = 0; i < 4; ++i) d.store((row + i / 2 * 8) * 8 + k + i % 2, sums[i]);
  }
};

TEST(Shim, ATensorCoreMultiplies) {
  std::vector<float> a(256), b(128), d(128), exact(128, 0.0F);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 23) - 11;
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 19) - 9;
  for (std::size_t i = 0; i < 16; ++i) {
    for (std::size_t j = 0; j < 8; ++j) {
      for (std::size_t k = 0; k < 16; ++k) exact[i * 8 + j] += a[i * 16 + k] * b[k * 8 + j];
    }
  }
  for (std::uint64_t seed = 0; seed < kOrders; ++seed) {
    EXPECT_EQ(
        error_of({.threads = 32}, OneProduct{global_const(a), global_const(b), global(d)}, seed),
        "");
    EXPECT_EQ(d, exact);
  }
}

TEST(Shim, RefusesALaunchThatNoGpuHas) {
  std::vector<float> y(64);
  const std::vector<float> x(64);
  const BlockSum<Mistake::kNone> kernel{global_const(x), global(y)};
  EXPECT_THAT(error_of({.threads = 33}, kernel), HasSubstr("33 threads"));
  EXPECT_THAT(error_of({.threads = 2048}, kernel), HasSubstr("2048 threads"));
  EXPECT_THAT(error_of({.blocks_x = 0}, kernel), HasSubstr("0 x 1 blocks"));
  EXPECT_THAT(error_of({.threads = 32}, kernel), HasSubstr("0 bytes of shared memory"));
}

}  // namespace
}  // namespace atl::cuda
