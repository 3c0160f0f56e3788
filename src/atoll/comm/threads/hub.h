#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "atoll/comm/call_header.h"
#include "atoll/comm/collective.h"
#include "atoll/comm/wait_word.h"

namespace atl::comm {

/// What one rank sends another: still in the sender's memory, for the receiver to copy.
struct Letter {
  const void* data = nullptr;
  std::size_t bytes = 0;
  std::optional<Spec> spec;  ///< where it is a tensor
};

/// Letters from one rank to one other, in order.
struct Mailbox {
  std::mutex mutex;
  std::vector<Letter> letters;  // from `first`; guarded by mutex
  std::size_t first = 0;        // guarded by mutex
  std::atomic<std::uint64_t> num_posted{0};
  std::atomic<std::uint64_t> num_taken{0};
};

/// What a rank shows to all others.
struct alignas(128) RankState {
  WaitWord news;                   ///< changes when something this rank may wait for has
  std::atomic<bool> ended{false};  ///< it makes no more calls
  /// 1 while it reads or writes memory of others. Apart from what the others look at often.
  alignas(128) std::atomic<std::uint32_t> touching{0};
  std::atomic<bool> in_call{false};  ///< the last call still runs
  std::mutex mutex;                  ///< guards what follows
  CallHeader header;                 ///< of its last call
};

/// What a rank shows to one other, on a line of its own, so that a look at one line tells all that
/// a small collective needs.
struct alignas(64) Meeting {
  /// How often it has come to meet the other. Written last; two ranks are in the same call when
  /// both count the same.
  std::atomic<std::uint64_t> count{0};
  /// What it is in, between its first meeting and its last.
  const Collective* call = nullptr;
  std::byte* data = nullptr;      ///< of the call
  std::uint64_t fingerprint = 0;  ///< of the call's header
};

/// Where the ranks of run_threads meet for the calls of one channel. The hub of the first channel
/// owns those of the others; they end together.
class Hub {
 public:
  Hub(int size, double timeout_s) : Hub(size, timeout_s, nullptr) {}

  /// The hub of another channel between these ranks; whoever asks first makes it.
  Hub& channel(int number, std::span<const int> members);

  int size() const { return size_; }
  double timeout_s() const { return timeout_s_; }
  RankState& rank(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  /// Of `from` with `with`; only the first writes it.
  Meeting& meeting(int from, int with) { return meetings_[index(from, with)]; }
  /// Whether each rank can have a core of its own, so that who waits may keep his.
  bool has_a_core_each() const { return has_a_core_each_; }
  Mailbox& mailbox(int from, int to) { return mailboxes_[index(from, to)]; }

  /// Ends all collectives of all channels, now and later, because `rank` has failed; the first call
  /// counts.
  void abort(int rank, const std::string& why) noexcept;
  bool aborted() const { return first_.aborted_.load(std::memory_order_seq_cst); }
  /// Once aborted: who, and why.
  int aborted_by() const { return first_.aborted_by_; }
  const std::string& why() const { return first_.why_; }
  /// `rank` makes no more calls.
  void end(int rank) noexcept;

 private:
  Hub(int size, double timeout_s, Hub* first);

  std::size_t index(int from, int to) const {
    return static_cast<std::size_t>(from) * static_cast<std::size_t>(size_) +
           static_cast<std::size_t>(to);
  }
  void wake_all() noexcept;

  Hub& first_;  // of the world's first channel, maybe this one
  int size_;
  double timeout_s_;
  bool has_a_core_each_;
  std::unique_ptr<RankState[]> ranks_;
  std::unique_ptr<Meeting[]> meetings_;
  std::unique_ptr<Mailbox[]> mailboxes_;
  // What follows is used of the first hub alone.
  std::mutex mutex_;
  std::map<std::array<int, 3>, std::unique_ptr<Hub>> channels_;  // guarded by mutex_
  std::atomic<bool> aborted_{false};
  int aborted_by_ = -1;
  std::string why_;
};

}  // namespace atl::comm
