#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "atoll/island/ledger/lease_table.h"
#include "atoll/island/policy/policy.h"
#include "atoll/island/protocol/protocol.h"

namespace atl::island {

/// What a run's log amounts to: a fold over its records, the same for the coordinator that wrote
/// them and for the one that reads them after it.
class RunState {
 public:
  /// `total_batches` of the run, or kEndless.
  RunState(int num_fragments, std::int64_t total_batches, PolicyPlan policy = {});

  /// Takes a record. Throws Error(kDamaged) when it contradicts those before.
  void apply(const LogBody& body);
  /// Leases the lowest free batches; what it returns must be appended, and not applied again.
  LogLease grant(IslandId island, std::int64_t num_batches);

  /// Outer steps that were committed and stand.
  std::int64_t outer_step() const { return static_cast<std::int64_t>(commits_.size()); }
  int num_fragments() const { return static_cast<int>(first_hashes_.size()); }
  /// The fragment that an outer step exchanges.
  int fragment_of(std::int64_t outer_step) const;
  /// Of the newest reduce of the outer step under way; 0: none was logged.
  std::uint32_t last_attempt() const { return reduce_ ? reduce_->attempt : 0; }
  /// Whether an island's pseudo-gradient is in the newest outer step that was committed.
  bool contributed(IslandId island) const { return newest_participants_.contains(island); }
  /// Whether it has joined and not gone since: it is connected, or was when the log ended.
  bool is_here(IslandId island) const { return here_.contains(island); }
  /// Pseudo-gradients in all outer steps that stand.
  std::int64_t arrivals() const { return arrivals_; }
  /// How the rounds so far went, and what the policy makes of them.
  const PolicyHistory& policy() const { return policy_; }
  bool is_policy_logged() const { return is_policy_logged_; }
  const LeaseTable& leases() const { return leases_; }
  bool was_finished() const { return was_finished_; }
  bool was_begun() const { return outer_step() > 0 || leases_.high_water() > 0; }

  /// Each fragment's hash after so many outer steps; empty when one is not known: those of outer
  /// step 0 are not in the log, because nothing is to be replayed from them.
  std::vector<StateHash> hashes(std::int64_t outer_step) const;
  /// Whether a state said to be that of `outer_step` can be; what is not known, fits.
  bool fits(std::int64_t outer_step, std::span<const StateHash> hashes) const;
  // Where islands gossip, each has a state of its own: one that its newest exchange ended with, or
  // that it took from another island.
  struct Result {
    std::int64_t outer_step = -1;  ///< whose exchange ended with it; -1: there was none
    StateHash hash;
  };
  /// The newest of an island's exchanges that stand.
  Result newest_result(IslandId island) const;
  /// Of any exchange of the newest outer step that had one; of the beginning before.
  StateHash some_result() const;
  /// Whether an island can have had this state when so many outer steps were committed; what is not
  /// known, fits.
  bool was_a_state(std::int64_t outer_step, const StateHash& hash) const;
  /// Whether the newest outer step has made the mean of all states, and all have the same.
  bool is_averaged() const {
    return !commits_.empty() && commits_.back().consumed.empty() && commits_.back().results.empty();
  }

  /// Of the newest outer step that was committed; zero before the first.
  StateHash newest_hash() const { return commits_.empty() ? StateHash{} : commits_.back().hash; }
  /// With gossip: whether this can be nothing but the state of the beginning, which some islands
  /// may have for long and which is not known: no exchange, void ones included, ended with it.
  bool may_be_first(const StateHash& hash) const;
  /// Believes that it is.
  void learn_first(const StateHash& hash) { first_hashes_.front() = hash; }
  /// Believes a state that fits, as far as the log does not say.
  void learn(std::span<const StateHash> hashes);
  /// Forgets what it learned of outer step 0.
  void forget() { std::fill(first_hashes_.begin(), first_hashes_.end(), std::nullopt); }

  /// All islands ever, by number.
  const std::map<IslandId, LogIsland>& islands() const { return islands_; }
  std::optional<IslandId> island_named(const std::string& name) const;

 private:
  struct CommitRecord {
    StateHash hash;
    std::vector<BatchRange> consumed;
    std::vector<IslandId> participants;
    std::map<IslandId, StateHash> results;  // with gossip
  };

  void apply_commit(const LogCommit& commit);
  void apply_void(const LogVoid& voided);
  std::optional<StateHash> hash_of(int fragment, std::int64_t outer_step) const;

  std::vector<std::optional<StateHash>> first_hashes_;  // by fragment, at outer step 0
  LeaseTable leases_;
  std::vector<CommitRecord> commits_;  // by outer step
  std::int64_t arrivals_ = 0;
  PolicyHistory policy_;
  bool is_policy_logged_ = false;
  bool was_finished_ = false;
  std::set<IslandId> newest_participants_;
  std::set<StateHash> void_results_;  // with gossip
  std::optional<LogReduce> reduce_;   // of the outer step under way
  std::set<IslandId> here_;
  std::map<IslandId, LogIsland> islands_;
  std::map<std::string, IslandId> ids_;
};

/// Of each island that had gone by the end of a log, and for the last time: how long before that
/// end.
std::map<IslandId, Seconds> gone_since(std::span<const LogRecord> log);

}  // namespace atl::island
