// What the shim counts of a warp's accesses, by kernels that share memory well and badly.

#include "atoll/device/fake_cuda/warp_accesses.h"

#include <gtest/gtest.h>

#include <vector>

#include "atoll/device/cuda/kernel.h"
#include "atoll/device/fake_cuda/run_kernel.h"

namespace atl::cuda {
namespace {

using fake_cuda::AccessTotals;
using fake_cuda::Checks;
using fake_cuda::Order;
using fake_cuda::run_kernel;

constexpr std::uint64_t kOrders = 8;

// Each lane reads kStride elements behind the lane before, writes them into shared memory as far
// apart, and reads them there N at once, kStride apart.
template <int kStride, int N>
struct Strided {
  static constexpr const char* kName = "strided";
  static constexpr int kMaxThreads = 32;
  Global<const float> x;
  Global<float> y;

  ATOLL_DEVICE void operator()() const {
    const Shared<float> box = shared_memory<float>(0, 32 * kStride);
    box.store(thread() * kStride, x.load(thread() * kStride));
    sync_block();
    y.store(thread(), box.load<N>(thread() * kStride)[0]);
  }
};

// The totals, the same in every order of threads.
template <typename Kernel>
AccessTotals accesses_of(std::uint32_t shared_bytes, const Kernel& kernel, Checks checks) {
  ThreadPool threads(1);
  AccessTotals first;
  for (std::uint64_t seed = 0; seed < kOrders; ++seed) {
    const AccessTotals now =
        run_kernel(threads, {.shared_bytes = shared_bytes}, kernel, Order{seed}, checks).accesses;
    if (seed == 0) first = now;
    EXPECT_EQ(now.sectors, first.sectors) << seed;
    EXPECT_EQ(now.asked_bytes, first.asked_bytes) << seed;
    EXPECT_EQ(now.bank_conflicts, first.bank_conflicts) << seed;
  }
  return first;
}

template <int kStride, int N>
AccessTotals accesses_of_strided(Checks checks = {.counts_accesses = true}) {
  alignas(32) static float x[32 * kStride], y[32];
  const Strided<kStride, N> kernel{{x, 32 * kStride}, {y, 32}};
  return accesses_of(32 * kStride * 4, kernel, checks);
}

TEST(WarpAccesses, CountSectorsOfTheDevicesMemory) {
  const AccessTotals dense = accesses_of_strided<1, 1>();
  EXPECT_EQ(dense.sectors, 4u + 4u);
  EXPECT_EQ(dense.coalescing(), 1);
  // Every second word is half of each sector; every eighth is an eighth of 32.
  const AccessTotals halves = accesses_of_strided<2, 1>();
  EXPECT_EQ(halves.sectors, 8u + 4u);
  EXPECT_EQ(halves.asked_bytes, 2u * 32 * 4);
  const AccessTotals eighths = accesses_of_strided<8, 1>();
  EXPECT_EQ(eighths.sectors, 32u + 4u);
  EXPECT_LT(eighths.coalescing(), 0.25);
}

TEST(WarpAccesses, CountWaitsForBanksOfSharedMemory) {
  EXPECT_EQ((accesses_of_strided<1, 1>().bank_conflicts), 0u);
  // Written and read: pairs of lanes at one bank, then all lanes.
  EXPECT_EQ((accesses_of_strided<2, 1>().bank_conflicts), 2u);
  EXPECT_EQ((accesses_of_strided<32, 1>().bank_conflicts), 2u * 31);
  // Written four words apart, which is four lanes at one bank; read as packs that lie side by side,
  // of 8 bytes by halves of the warp and of 16 by quarters.
  EXPECT_EQ((accesses_of_strided<4, 4>().bank_conflicts), 3u);
  EXPECT_EQ((accesses_of_strided<2, 2>().bank_conflicts), 1u);
  // Packs of 16 bytes 32 bytes apart: each quarter waits once. Written: eight lanes at one bank.
  EXPECT_EQ((accesses_of_strided<8, 4>().bank_conflicts), 7u + 4u);
}

// Lanes that read the same word, and halves of the same words.
struct Alike {
  static constexpr const char* kName = "alike";
  static constexpr int kMaxThreads = 32;
  Global<const float> x;
  Global<float> y;

  ATOLL_DEVICE void operator()() const {
    const Shared<std::uint16_t> box = shared_memory<std::uint16_t>(0, 32);
    box.store(thread(), 1);
    sync_block();
    y.store(thread(), x.load(0) + static_cast<float>(box.load(7) + box.load(thread())));
  }
};

TEST(WarpAccesses, LanesThatWantOneWordGetItTogether) {
  alignas(32) static float x[32], y[32];
  const AccessTotals totals = accesses_of(64, Alike{{x, 32}, {y, 32}}, {.counts_accesses = true});
  EXPECT_EQ(totals.bank_conflicts, 0u);
  EXPECT_EQ(totals.sectors, 1u + 4u);
  EXPECT_EQ(totals.asked_bytes, 4u + 128u);
}

// Lane 0 passes once more at a line of shared memory before the warp meets.
struct Uneven {
  static constexpr const char* kName = "uneven";
  static constexpr int kMaxThreads = 32;
  Global<float> y;

  ATOLL_DEVICE void operator()() const {
    const int passes = lane() == 0 ? 2 : 1;
    for (int round = 0; round < 2; ++round) {
      for (int pass = 0; pass < passes; ++pass) y.store(round * 32 + lane(), 1.0F);
      sync_warp();
    }
  }
};

TEST(WarpAccesses, LanesAreInStepAgainWhereTheWarpMeets) {
  alignas(32) static float y[64];
  const AccessTotals totals = accesses_of(0, Uneven{{y, 64}}, {.counts_accesses = true});
  EXPECT_EQ(totals.sectors, 2u * (4 + 1));
  EXPECT_EQ(totals.asked_bytes, 2u * (128 + 4));
}

// Asynchronous copies, which go to shared memory once, and matrices, whose rows lie on each other's
// banks unless they are padded.
template <int kRow>
struct Copied {
  static constexpr const char* kName = "copied";
  static constexpr int kMaxThreads = 32;
  Global<const std::uint16_t> x;
  Global<std::uint32_t> y;

  ATOLL_DEVICE void operator()() const {
    const Shared<std::uint16_t> box = shared_memory<std::uint16_t>(0, 32 * kRow);
    copy_async<8>(box, lane() * kRow, x, lane() * 8);
    commit_copies();
    wait_copies<0>();
    sync_warp();
    std::uint32_t m[4];
    load_matrices(m, box, lane() * kRow);
    y.store(lane(), m[0]);
  }
};

template <int kRow>
AccessTotals accesses_of_copied() {
  alignas(32) static std::uint16_t x[256];
  alignas(32) static std::uint32_t y[32];
  return accesses_of(32 * kRow * 2, Copied<kRow>{{x, 256}, {y, 32}}, {.counts_accesses = true});
}

TEST(WarpAccesses, CountCopiesAndMatrices) {
  const AccessTotals side_by_side = accesses_of_copied<8>();
  EXPECT_EQ(side_by_side.sectors, 16u + 4u);
  EXPECT_EQ(side_by_side.bank_conflicts, 0u);
  EXPECT_EQ(accesses_of_copied<72>().bank_conflicts, 0u);
  EXPECT_EQ(accesses_of_copied<64>().bank_conflicts, 2u * 4 * 7);
}

TEST(WarpAccesses, CountNothingUnlessAsked) {
  const AccessTotals totals = accesses_of_strided<2, 1>({});
  EXPECT_EQ(totals.sectors, 0u);
  EXPECT_EQ(totals.bank_conflicts, 0u);
}

}  // namespace
}  // namespace atl::cuda
