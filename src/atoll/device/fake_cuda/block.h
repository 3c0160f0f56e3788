#pragma once

// One block of GPU threads on the host: a fiber for each thread, run in an order that a seed
// decides, with what the GPU leaves undefined made an error.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "atoll/device/cuda/launch.h"
#include "atoll/device/fake_cuda/fiber.h"
#include "atoll/device/fake_cuda/sanitizers.h"
#include "atoll/device/fake_cuda/warp_accesses.h"
#include "atoll/device/fake_cuda/where.h"

namespace atl::fake_cuda {

constexpr int kWarp = 32;

/// In which order blocks and threads run: 0 first to last, 1 last to first, else shuffled anew
/// after each meeting, by this seed.
struct Order {
  std::uint64_t seed = 0;
};

/// What is looked at beside what is an error always.
struct Checks {
  bool counts_accesses = false;  ///< fills Traffic::accesses, at several times the cost
  bool finds_races = true;       ///< for shared memory; else they are left to a sanitizer
};

/// Bytes that kernels have moved between the device's memory and its threads.
struct Traffic {
  std::uint64_t read = 0;
  std::uint64_t written = 0;
  AccessTotals accesses;  ///< where Checks ask for them

  Traffic& operator+=(const Traffic& other) {
    read += other.read;
    written += other.written;
    accesses += other.accesses;
    return *this;
  }
};

/// A block of threads that runs kernels, one block after the other; reused, since fibers and shared
/// memory are. Errors are Error(kInternal) that name kernel, block, thread and line.
class Block {
 public:
  Block() = default;
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  /// Runs block (x, y) of a launch. Shared memory begins as NaNs. Throws Error(kInternal) when a
  /// thread leaves its memory, when threads race for shared memory, or when they do not meet.
  void run(const cuda::KernelCode& code, const cuda::LaunchShape& shape, const void* operands,
           std::uint32_t x, std::uint32_t y, Order order, Checks checks);
  /// Of the last run.
  const Traffic& traffic() const { return traffic_; }

  /// The block whose thread is running here.
  static Block& current() {
    if (running_ == nullptr) [[unlikely]]
      fail_outside_kernels();
    return *running_;
  }

  // What kernels see, for the thread that is running.
  int thread() const { return thread_; }
  const cuda::LaunchShape& shape() const { return shape_; }
  std::uint32_t x() const { return x_; }
  std::uint32_t y() const { return y_; }

  /// All threads of the block meet here.
  void meet_block(Where where);
  /// The lanes of a warp meet: each brings `size` bytes, at most kMaxPosted, under the name `kind`.
  /// True for the lane that comes last, which then goes on before the others do.
  ATOLL_UNWATCHED bool meet_warp(const char* kind, const void* value, std::size_t size,
                                 Where where) {
    Warp& warp = warp_of_thread();
    // Of all that lanes meet for, sync_warp alone orders memory, and brings nothing.
    if (size == 0) arrive_at(warp.posted[warp.meeting % 2][0]);
    {
      const Unwatched books;
      std::memcpy(warp.posted[warp.meeting % 2][lane_of_thread()], value, size);
    }
    return meet_warp(kind, where);
  }
  /// What lane `lane` brought to the meeting that the running thread was at last.
  const std::byte* posted(int lane) const {
    const std::uint32_t meeting = threads_[static_cast<std::size_t>(thread_)].meeting;
    return warp_of_thread().posted[meeting % 2][lane];
  }
  std::byte* posted(int lane) { return const_cast<std::byte*>(std::as_const(*this).posted(lane)); }
  /// The lanes' accesses to shared memory before are ordered before those after.
  void order_warp();

  /// Shared memory from byte `offset` on.
  std::byte* shared(int offset, std::size_t bytes, Where where);
  void note_shared_read(const void* at, std::size_t bytes, Where where);
  void note_shared_write(const void* at, std::size_t bytes, Where where);
  ATOLL_UNWATCHED void note_read(const void* at, std::size_t bytes, Where where) {
    traffic_.read += bytes;
    if (checks_.counts_accesses) note_access(WarpAccesses::Kind::kRead, at, bytes, where);
  }
  ATOLL_UNWATCHED void note_write(const void* at, std::size_t bytes, Where where) {
    traffic_.written += bytes;
    if (checks_.counts_accesses) note_access(WarpAccesses::Kind::kWrite, at, bytes, where);
  }

  /// Copies (or, from null, zeroes) at the time at which the thread waits for it, and not before.
  /// A GPU may do so at any time in between, so the place counts as written from now on.
  void copy_later(void* to, const void* from, std::size_t bytes, Where where);
  void commit_copies();
  void wait_copies(int groups_left, Where where);

  /// Throws the error of the running thread.
  [[noreturn]] void fail(const std::string& what, Where where) const;
  /// The same of an access to `count` elements from i on of `size` in the memory `which`: that they
  /// are outside, or not aligned.
  [[noreturn]] void fail_access(std::int64_t i, int count, std::int64_t size, const char* which,
                                Where where) const;

  static constexpr std::size_t kMaxPosted = 48;

 private:
  enum class State : std::uint8_t { kReady, kAtBlock, kAtWarp, kDone };
  struct Copy {
    void* to;
    const void* from;
    std::size_t bytes;
    int group;
    Where where;
  };
  struct Thread {
    std::unique_ptr<Fiber> fiber;
    State state = State::kDone;
    bool has_begun = false;
    Where where;
    const char* kind = "";
    std::uint32_t meeting = 0;  // of the warp, at which it was last
    std::vector<Copy> copies;
    int copy_group = 0;
  };
  struct Warp {
    int arrived = 0;
    std::uint32_t meeting = 0;  // that lanes come to now
    const char* kind = "";
    Where where;
    std::uint32_t order = 0;
    // Two meetings' worth: a lane may come to the next one before all have read this one.
    std::byte posted[2][kWarp][kMaxPosted];
  };
  // Of two bytes of shared memory: who touched them last, and when.
  struct Touch {
    std::int16_t writer = kNobody;
    std::int16_t reader = kNobody;  // or kLanes of one warp, or kMany
    std::int16_t reader_warp = 0;
    std::uint32_t write_epoch = 0;  // 0: never
    std::uint32_t write_order = 0;
    std::uint32_t read_epoch = 0;
    std::uint32_t read_order = 0;
  };
  static constexpr std::int16_t kNobody = -1;
  static constexpr std::int16_t kLanes = -2;
  static constexpr std::int16_t kMany = -3;

  [[noreturn]] static void fail_outside_kernels();
  std::size_t lane_of_thread() const { return static_cast<std::size_t>(thread_) % kWarp; }
  Warp& warp_of_thread() { return warps_[static_cast<std::size_t>(thread_) / kWarp]; }
  const Warp& warp_of_thread() const { return warps_[static_cast<std::size_t>(thread_) / kWarp]; }

  void prepare();
  void prepare_shared();
  /// The thread whose turn it is in this pass, which is then the running one; null at the pass's
  /// end.
  Thread* next_ready();
  /// The thread's fiber, at its beginning if it has none yet.
  Fiber& begun(Thread& thread);
  void run_threads();
  void run_all(Order order);
  void shuffle_order(Order order, std::uint64_t pass);
  bool meet_warp(const char* kind, Where where);
  void wait_as(State state, Where where);
  [[noreturn]] void fail_stuck();
  [[noreturn]] void fail_race(const char* what, int other, Where where) const;
  void note_access(WarpAccesses::Kind kind, const void* at, std::size_t bytes, Where where);
  void count_accesses(int warp);
  void check_shared_write(const void* at, std::size_t bytes, Where where);
  Touch* touches(const void* at, std::size_t bytes, Where where, std::size_t& count);

  static constinit thread_local Block* running_;

  cuda::KernelCode code_;
  cuda::LaunchShape shape_;
  const void* operands_ = nullptr;
  std::uint32_t x_ = 0;
  std::uint32_t y_ = 0;
  int thread_ = 0;
  int num_done_ = 0;
  int arrived_ = 0;
  Where meeting_place_;
  std::uint32_t epoch_ = 0;  // goes on from block to block, so that touches_ need not be cleared
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<int> order_;
  std::size_t turn_ = 0;        // in order_
  std::byte barriers_[2] = {};  // their addresses, for ThreadSanitizer
  std::unique_ptr<std::byte[]> shared_;
  std::size_t shared_capacity_ = 0;
  std::vector<Touch> touches_;
  Checks checks_;
  Traffic traffic_;
  std::vector<WarpAccesses> accesses_;  // of each warp
  std::exception_ptr error_;
};

}  // namespace atl::fake_cuda
