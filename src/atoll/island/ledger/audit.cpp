#include "atoll/island/ledger/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "atoll/island/ledger/lease_table.h"
#include "atoll/island/policy/policy.h"
#include "atoll/island/protocol/partners.h"

namespace atl::island {

namespace {

constexpr std::size_t kMaxFindings = 100;
constexpr std::size_t kRangesInAFinding = 4;

class Auditor {
 public:
  AuditReport audit(std::span<const LogRecord> records) {
    for (const LogRecord& record : records) {
      ++number_;
      if (number_ == 1 && !std::holds_alternative<LogStarted>(record.body)) {
        find("the log does not begin with the start of a coordinator");
      }
      std::visit(*this, record.body);
    }
    number_ = 0;
    check_history();
    report_.num_committed = committed();
    report_.consumed = table_.num_consumed();
    report_.leased = table_.num_leased();
    report_.high_water = table_.high_water();
    report_.returned = report_.high_water - report_.consumed - report_.leased;
    return std::move(report_);
  }

  void operator()(const LogStarted& x) {
    if (x.fence <= fence_) find("fence {} after fence {}", x.fence, fence_);
    fence_ = std::max(fence_, x.fence);
    finished_ = false;  // a run may be made longer
    newest_.reset();    // what a coordinator had under way ends with it
  }

  void operator()(const LogIsland& x) {
    if (x.island == kNobody) find("\"{}\" is given the number of nobody", x.name);
    const auto [by_number, new_number] = names_.emplace(x.island, x.name);
    if (!new_number && by_number->second != x.name) {
      find("island {} is \"{}\" and \"{}\"", x.island, by_number->second, x.name);
    }
    const auto [by_name, new_name] = numbers_.emplace(x.name, x.island);
    if (!new_name && by_name->second != x.island) {
      find("\"{}\" is island {} and island {}", x.name, by_name->second, x.island);
    }
  }

  void operator()(const LogLease& x) {
    check_known(x.island);
    check_not_finished("a lease");
    if (table_.lease(x.island, x.ranges)) return;
    find("island {} is leased batches that are not free: {}", x.island, text(x.ranges));
  }

  void operator()(const LogReturn& x) {
    check_known(x.island);
    if (table_.give_back(x.island, x.ranges)) return;
    find("island {} returns batches that it does not hold: {}", x.island, text(x.ranges));
  }

  void operator()(const LogReduce& x) {
    check_not_finished("an attempt");
    if (x.outer_step != committed()) {
      find("an attempt at outer step {}, and {} is next", x.outer_step, committed());
    }
    if (newest_ && newest_->outer_step == x.outer_step && x.attempt <= newest_->attempt) {
      find("attempt {} at outer step {} after attempt {}", x.attempt, x.outer_step,
           newest_->attempt);
    }
    check_contributions(x);
    newest_ = x;
  }

  void operator()(const LogCommit& x) {
    check_not_finished("a commit");
    if (x.outer_step != committed()) {
      find("outer step {} is committed, and {} is next", x.outer_step, committed());
      return;
    }
    if (!newest_ || newest_->outer_step != x.outer_step || newest_->attempt != x.attempt) {
      find("attempt {} at outer step {} is committed and is not the newest", x.attempt,
           x.outer_step);
      return;
    }
    if (x.hash == StateHash{}) find("outer step {} is committed without a hash", x.outer_step);
    keep_done(x);
    for (const LogContribution& contribution : newest_->contributions) {
      const IslandId island = contribution.participant.island;
      if (table_.consume(island, contribution.consumed)) continue;
      find("outer step {} consumes batches that island {} does not hold: {}", x.outer_step, island,
           text(contribution.consumed));
    }
    check_schedule(x);
    commits_.push_back(*std::move(newest_));
    newest_.reset();
  }

  void operator()(const LogVoid& x) {
    if (x.first_outer_step < 0 || x.first_outer_step >= committed()) {
      find("outer steps from {} on are void, and {} are committed", x.first_outer_step,
           committed());
      return;
    }
    while (committed() > x.first_outer_step) {
      for (const LogContribution& contribution : commits_.back().contributions) {
        if (table_.unconsume(contribution.consumed)) continue;
        find("void outer step {} has batches that were not consumed: {}",
             commits_.back().outer_step, text(contribution.consumed));
      }
      commits_.pop_back();
      policy_.forget_newest();
      ++report_.num_void;
    }
    newest_.reset();
  }

  void operator()(const LogFinished&) {
    finished_ = true;
    const bool is_averaged = !commits_.empty() && is_mean(commits_.back());
    if (has_exchanges_ && !is_averaged) find("the run is finished without the mean of all states");
  }

  void operator()(const LogPolicy& x) {
    if (committed() > 0) find("the policy is said after {} outer steps", committed());
    if (const std::string why = policy_fault(x.plan, 2); !why.empty()) return find("{}", why);
    policy_ = PolicyHistory(x.plan);
  }

 private:
  template <typename... Args>
  void find(fmt::format_string<Args...> format, Args&&... args) {
    if (report_.findings.size() == kMaxFindings) {
      ++report_.num_unsaid;
      return;
    }
    const std::string what = fmt::format(format, std::forward<Args>(args)...);
    report_.findings.push_back(number_ > 0 ? fmt::format("record {}: {}", number_, what) : what);
  }

  static std::string text(const std::vector<BatchRange>& ranges) {
    return to_text(ranges, kRangesInAFinding);
  }
  std::int64_t committed() const { return static_cast<std::int64_t>(commits_.size()); }

  void check_known(IslandId island) {
    if (!names_.contains(island)) find("island {} has not joined", island);
  }
  void check_not_finished(const char* what) {
    if (finished_) find("{} after the run was finished", what);
  }

  // The policy is asked again: the schedule must be what it says.
  void check_schedule(const LogCommit& x) {
    if (policy_.is_fixed() != !x.next) {
      find("outer step {} is committed {} schedule for the next", x.outer_step,
           x.next ? "with a" : "without a");
    } else if (x.next) {
      const PolicyDecision expected = policy_.decide(*newest_, x.exchange_seconds);
      const std::int64_t fragments = policy_.plan().fragments;
      if (expected.next != *x.next) {
        find("outer step {} has the schedule {} for the next, and its policy says {}", x.outer_step,
             to_text(*x.next, fragments), to_text(expected.next, fragments));
      }
    }
    policy_.committed(*newest_, x);
  }

  // With gossip: the outer step that makes the mean of all states, and brings nothing of its own.
  static bool is_mean(const LogReduce& x) {
    return std::all_of(x.contributions.begin(), x.contributions.end(),
                       [](const auto& one) { return one.exchange == 0 && one.consumed.empty(); });
  }

  // With gossip: partners are who they must be, and have the same result; what an exchange that
  // came to nothing would have brought is not in the outer step.
  void keep_done(const LogCommit& x) {
    std::vector<LogContribution>& all = newest_->contributions;
    const bool has_exchanges =
        std::any_of(all.begin(), all.end(), [](const auto& one) { return one.exchange != 0; });
    if (x.results.size() != (has_exchanges ? all.size() : 0)) {
      find("outer step {} is committed with {} results of {} contributions", x.outer_step,
           x.results.size(), all.size());
      return;
    }
    has_exchanges_ |= has_exchanges;
    std::map<int, StateHash> results;
    std::vector<LogContribution> done;
    for (std::size_t i = 0; i < x.results.size(); ++i) {
      const StateHash& result = results.emplace(all[i].exchange, x.results[i]).first->second;
      if (result != x.results[i]) {
        find("outer step {}: partners of exchange {} have different results", x.outer_step,
             all[i].exchange);
      }
      if (x.results[i] != StateHash{}) done.push_back(all[i]);
    }
    if (!has_exchanges) return;
    if (done.empty()) find("outer step {} is committed without any exchange", x.outer_step);
    all = std::move(done);
  }

  // Of an attempt with exchanges: who exchanges with whom follows from the outer step.
  void check_partners(const LogReduce& x) {
    std::vector<IslandId> ready;
    std::vector<int> exchanges;
    for (const LogContribution& one : x.contributions) {
      ready.push_back(one.participant.island);
      exchanges.push_back(one.exchange);
    }
    if (exchanges == exchanges_of(std::max<std::int64_t>(0, x.outer_step), ready)) return;
    find("outer step {} has other partners than the rule of partners gives", x.outer_step);
  }

  void check_contributions(const LogReduce& x) {
    std::map<int, std::pair<double, int>> weights;  // by exchange: their sum, and how many
    IslandId before = kNobody;
    for (const LogContribution& contribution : x.contributions) {
      const Participant& participant = contribution.participant;
      check_known(participant.island);
      if (participant.island <= before) {
        find("island {} comes after island {} in a sum", participant.island, before);
      }
      before = participant.island;
      auto& [sum, count] = weights[contribution.exchange];
      sum += participant.weight;
      ++count;
      if (!(participant.weight >= 0)) {
        find("island {} has weight {}", participant.island, participant.weight);
      }
      if (table_.holds(participant.island, contribution.consumed)) continue;
      find("island {} contributes batches that it does not hold: {}", participant.island,
           text(contribution.consumed));
    }
    if (x.contributions.empty()) weights[0] = {0, 1};
    if (weights.size() > 1 || !weights.contains(0)) check_partners(x);
    // Each weight is rounded to half an ulp of at most 1, and so is each sum.
    for (const auto& [exchange, total] : weights) {
      const double bound = total.second * std::numeric_limits<double>::epsilon();
      if (std::abs(total.first - 1) <= bound) continue;
      find("the weights of attempt {} at outer step {} add up to {}", x.attempt, x.outer_step,
           total.first);
    }
  }

  // Once more, and from the commits alone: what the table would have refused must not be there.
  void check_history() {
    RangeSet seen;
    for (const LogReduce& commit : commits_) {
      for (const LogContribution& contribution : commit.contributions) {
        for (const BatchRange& range : contribution.consumed) {
          if (seen.overlaps(range)) {
            find("outer step {} has batches that an earlier one has too: {}", commit.outer_step,
                 to_text(std::span(&range, 1), 1));
          }
          seen.add(range);
        }
      }
    }
    if (seen.num_batches() != table_.num_consumed()) {
      find("the commits that stand have {} batches, and {} were consumed", seen.num_batches(),
           table_.num_consumed());
    }
  }

  AuditReport report_;
  std::size_t number_ = 0;  // of the record under audit, from 1; 0: none in particular
  std::uint64_t fence_ = 0;
  bool finished_ = false;
  std::map<IslandId, std::string> names_;
  std::map<std::string, IslandId> numbers_;
  LeaseTable table_{kEndless};
  std::optional<LogReduce> newest_;
  std::vector<LogReduce> commits_;  // that stand, by outer step
  bool has_exchanges_ = false;      // islands gossip
  PolicyHistory policy_;
};

}  // namespace

AuditReport audit(std::span<const LogRecord> records) {
  return Auditor().audit(records);
}

std::string to_text(std::span<const BatchRange> ranges, std::size_t max_ranges) {
  std::string text;
  std::size_t said = 0;
  std::size_t unsaid = 0;
  for (const BatchRange& range : ranges) {
    if (range.begin >= range.end) continue;
    if (said == max_ranges) {
      ++unsaid;
      continue;
    }
    text += said++ == 0 ? "" : ", ";
    text += range.size() == 1 ? fmt::format("{}", range.begin)
                              : fmt::format("{}-{}", range.begin, range.end - 1);
  }
  if (unsaid > 0) text += fmt::format(" and {} more", unsaid);
  return text.empty() ? "none" : text;
}

}  // namespace atl::island
