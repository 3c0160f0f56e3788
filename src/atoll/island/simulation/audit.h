#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "atoll/island/policy/policy.h"
#include "atoll/island/protocol/protocol.h"
#include "atoll/island/protocol/range_set.h"

namespace atl::island {

/// A stand-in for a pseudo-gradient: what it was made of.
StateHash simulated_delta(IslandId island, const StateHash& base,
                          const std::vector<BatchRange>& consumed);
/// A stand-in for an outer step: all that may change its result.
StateHash simulated_outer_step(const StateHash& base, const std::vector<Participant>& participants,
                               const std::vector<StateHash>& deltas);
/// A stand-in for a new model's fragment.
StateHash simulated_first_state(int fragment);

/// Watches a simulated run: what must never happen. It keeps its own books, from what is logged and
/// from what islands do, and trusts none of the coordinator's.
class SimulationAudit {
 public:
  explicit SimulationAudit(const RunPlan& plan) : plan_(plan), policy_(plan.policy) {}

  /// A record is durable.
  void appended(const LogBody& body, Seconds now);
  /// An island makes that the state.
  void swapped(IslandId island, std::int64_t outer_step, const StateHash& hash, bool was_mine,
               Seconds now);
  /// An island has come to its end.
  void ended(IslandId island, std::int64_t outer_step, const std::vector<StateHash>& hashes,
             Seconds now);
  /// Nothing more happens; all batches must be committed.
  void finish(bool is_finished, Seconds now);
  /// With gossip: an island hands this in, which it has trained on that state.
  void offered(IslandId island, std::int64_t outer_step, const StateHash& base) {
    bases_[island][outer_step] = base;
  }
  /// Results are made wrong on purpose: the log may hold what did not come of its contributions.
  void expect_wrong_results() { is_exact_ = false; }
  void violation(std::string text, Seconds now);

  std::int64_t outer_step() const { return static_cast<std::int64_t>(commits_.size()); }
  std::vector<StateHash> hashes() const;
  std::int64_t num_commits() const { return num_commits_; }
  std::int64_t num_attempts() const { return num_attempts_; }
  std::int64_t num_voids() const { return num_voids_; }
  std::int64_t num_batches() const { return consumed_.num_batches(); }
  Seconds longest_pause() const { return longest_pause_; }
  const std::vector<std::string>& violations() const { return violations_; }

 private:
  struct CommitSeen {
    StateHash hash;
    std::set<IslandId> participants;
    std::vector<BatchRange> consumed;
    std::map<IslandId, StateHash> results;  // with gossip
  };

  void commit(const LogCommit& commit, Seconds now);
  void check_exchanges(const LogCommit& commit, Seconds now);
  bool was_a_state(const StateHash& hash) const;
  void unmake(const LogVoid& voided, Seconds now);
  void check_schedule(const LogCommit& commit, Seconds now);
  StateHash fragment_hash(int fragment, std::int64_t outer_step) const;

  RunPlan plan_;
  PolicyHistory policy_;
  std::vector<CommitSeen> commits_;
  std::map<std::int64_t, std::vector<CommitSeen>> voided_;  // by outer step
  std::optional<LogReduce> reduce_;
  std::map<IslandId, RangeSet> leased_;
  RangeSet all_leased_;
  RangeSet consumed_;
  std::map<IslandId, std::map<std::int64_t, StateHash>> bases_;  // with gossip: by outer step
  std::uint64_t fence_ = 0;
  bool is_exact_ = true;
  std::int64_t num_commits_ = 0;
  std::int64_t num_attempts_ = 0;
  std::int64_t num_voids_ = 0;
  Seconds last_commit_ = 0;
  Seconds longest_pause_ = 0;
  std::vector<std::string> violations_;
};

}  // namespace atl::island
