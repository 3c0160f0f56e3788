#pragma once

// How much islands communicate: which schedule the next round has, as a pure function of what the
// ledger says of the rounds before. No clock, no randomness, and no operation whose last bit
// depends on the machine (only + - * / sqrt floor), so that the coordinator, its successor and the
// audit all get the same. docs/how-much-to-communicate.md says what each policy is for.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "atoll/island/protocol/protocol.h"

namespace atl::island {

/// "fixed", "qsr", "adacomm", "budget", "auto".
std::span<const char* const> policy_names();

/// Why a plan cannot be followed, in one line that says what to change; "" when it can. `islands`:
/// that the run is planned for. Of a stranger's plan too.
std::string policy_fault(const PolicyPlan& plan, int islands);

/// The codec of means, where that of pseudo-gradients is `codec`. Means travel less often than what
/// they are of, and all islands start from them: they are rounded once, at most.
const char* sum_codec_of(const std::string& codec);

/// Bytes of a parameter by a codec, as a part of a whole pseudo-gradient.
double bytes_per_parameter(const std::string& codec);
/// Bytes that an island sends in an exchange of so many parameters between so many islands:
/// whichever is less of its pseudo-gradient to all others, or a share of it and of the sums.
double exchange_bytes(const std::string& codec, double parameters, int islands);

/// What a committed outer step, and all before it, say to a policy.
struct RoundRecord {
  RoundSchedule used;
  int num_islands = 0;          ///< that contributed
  double bytes = 0;             ///< that each of them sent, in all attempts
  double exchange_seconds = 0;  ///< by the coordinator's clock; 0: not known yet
  double round_seconds = 0;     ///< by the coordinator's clock; 0: not known yet
  // Medians over the islands, of what makes sense; 0: nothing did.
  double step_seconds = 0;
  double learning_rate = 0;
  double loss = 0;
  double fixed_seconds = 0;  ///< of an exchange, whatever its bytes: round trips and the codec
  double unlikeness = 1;     ///< of pseudo-gradients; 0: all the same, 1: as if at random
  // Since the beginning.
  double greatest_lr = 0;
  double first_loss = 0;
  double square_norm = 0;         ///< weighted mean of the squares, for the unlikeness of the next
  std::int64_t since_change = 0;  ///< outer steps before this one that had the same schedule
  RoundSchedule before = {};      ///< the schedule before that
  double loss_before = 0;         ///< mean loss of the last outer steps that had it
  bool has_changed = false;       ///< the schedule, ever
  bool went_back = false;         ///< the change was back to an earlier schedule
};

/// What a policy says of the next round.
struct PolicyDecision {
  RoundSchedule next;
  std::string why;  ///< it differs; empty: it does not
};

/// The rule. `past`: the newest rounds that were committed, at least kPolicyMemory of them where
/// there are as many; `now`: the round under way, whose exchange may not have been made yet.
PolicyDecision decide(const PolicyPlan& plan, std::span<const RoundRecord> past,
                      const RoundRecord& now);
inline constexpr std::size_t kPolicyMemory = 64;

/// The rounds of a run, as the ledger tells them, and what the policy makes of them.
class PolicyHistory {
 public:
  explicit PolicyHistory(PolicyPlan plan = {}) : plan_(std::move(plan)) {}

  const PolicyPlan& plan() const { return plan_; }
  bool is_fixed() const { return plan_.policy == "fixed"; }
  /// Of the outer step under way.
  const RoundSchedule& schedule() const { return next_.empty() ? plan_.base : next_.back(); }
  /// What follows the outer step that this attempt is for, if it is committed. `exchange_seconds`:
  /// of its exchange; 0: it has not been made yet.
  PolicyDecision decide(const LogReduce& attempt, double exchange_seconds = 0) const;
  void committed(const LogReduce& attempt, const LogCommit& commit);
  /// The newest outer step is void.
  void forget_newest();
  /// Seconds that the next exchange has to wait, so that no day has more bytes than its budget.
  /// `idle`: seconds since the newest commit.
  double seconds_to_wait(double idle, int islands) const;

  const std::vector<RoundRecord>& rounds() const { return rounds_; }

 private:
  RoundRecord record_of(const LogReduce& attempt) const;

  PolicyPlan plan_;
  std::vector<RoundRecord> rounds_;  // by outer step
  std::vector<RoundSchedule> next_;  // of the outer step after each
};

/// Whether two schedules ask for the same, whatever was predicted of them.
bool is_same_setting(const RoundSchedule& a, const RoundSchedule& b);
/// "H 30, codec int8": what people change.
std::string to_text(const RoundSchedule& schedule, std::int64_t fragments);

}  // namespace atl::island
