#pragma once

// The ranks that share a segment: how they sleep, how they are woken, and how a failure of one is
// found out and told to all.

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "atoll/comm/shared/segment.h"
#include "atoll/comm/world.h"

namespace atl::comm::shared {

/// One rank of this host.
struct LocalRank {
  int rank = 0;  ///< in the world
  int pid = 0;
};

/// What a rank knows of, and tells to, the ranks of its host through the Segment.
class LocalRanks {
 public:
  /// `local_ranks[self]` is this process.
  LocalRanks(Segment& segment, std::vector<LocalRank> local_ranks, int self);
  ~LocalRanks();
  LocalRanks(const LocalRanks&) = delete;
  LocalRanks& operator=(const LocalRanks&) = delete;

  int size() const { return static_cast<int>(local_ranks_.size()); }
  int self() const { return self_; }
  int rank(int local) const { return local_ranks_[static_cast<std::size_t>(local)].rank; }
  /// The place of a rank of the world among those of this host, or -1.
  int find(int rank) const;

  /// Says what this rank does now; enter() begins, leave() ends.
  void enter(const CallHeader& call);
  void leave();

  /// Wakes a rank because one of its queues changed.
  void wake(int local);
  /// How often this rank has been woken. Read this, look at the queues, then pass it to wait().
  std::uint32_t wake_count() const;
  /// Sleeps while wake_count() is still `seen`, for at most `most`.
  void wait(std::uint32_t seen, std::chrono::microseconds most);

  /// The first of those awaited that will never come: dead, or its World destroyed. -1: none.
  int lost(const std::vector<int>& awaited) const;
  /// Throws the PeerError that says so, on all ranks of this host.
  [[noreturn]] void fail_lost(int local);
  /// Makes `text` about `rank` (of the world; -1: unknown) the error that all ranks of this host
  /// see, unless there is one already; wakes everybody.
  void fail(int rank, const std::string& text) noexcept;
  /// Throws what fail() made, if anything.
  void throw_failure() const;

  /// Of those awaited, the one that is most likely to blame; `arrived[local]`: it has come to the
  /// same call.
  int suspect(const std::vector<int>& awaited, const std::vector<char>& arrived) const;
  /// "rank 2 (pid 71)".
  std::string name(int local) const;
  /// "its last call was ..., 3.1 s ago; the process is stopped".
  std::string describe(int local) const;

 private:
  bool dead(int local) const;
  double silence(int local) const;  // seconds

  Segment& segment_;
  std::vector<LocalRank> local_ranks_;
  std::vector<int> pidfds_;
  int self_;
};

}  // namespace atl::comm::shared
