#include "atoll/island/ledger/audit_history.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace atl::island {

namespace {

// Of numbers that nobody has checked: ends at the greatest there is.
void add(std::int64_t& sum, std::int64_t number) {
  if (__builtin_add_overflow(sum, number, &sum)) sum = std::numeric_limits<std::int64_t>::max();
}

class HistoryBuilder {
 public:
  explicit HistoryBuilder(History& history) : history_(history) {}

  void tell(const LogRecord& record) {
    now_ = record.unix_seconds;
    std::visit(*this, record.body);
  }

  void operator()(const LogStarted& x) {
    history_.starts.push_back({x.fence, now_});
    abandon();
  }
  void operator()(const LogIsland& x) {
    IslandHistory& island = history_.islands[x.island];
    if (island.name.empty()) island.joined = now_;
    island.name = x.name;
    island.address = x.address;
  }
  void operator()(const LogLease&) {}
  void operator()(const LogReturn&) {}
  void operator()(const LogPolicy& x) { history_.policy = x.plan; }
  void operator()(const LogReduce& x) {
    abandon();
    history_.attempts.push_back({.begun = now_, .reduce = x});
    under_way_ = true;
  }
  void operator()(const LogCommit& x) {
    if (!std::exchange(under_way_, false)) return;
    OuterAttempt& attempt = history_.attempts.back();
    attempt.outcome = OuterAttempt::Outcome::kCommitted;
    attempt.ended = now_;
    attempt.hash = x.hash;
    attempt.commit = x;
    // Of exchanges that came to nothing nothing is in the outer step.
    std::vector<LogContribution> done;
    for (std::size_t i = 0; i < attempt.reduce.contributions.size(); ++i) {
      const bool is_in = i >= x.results.size() || x.results[i] != StateHash{};
      if (is_in) done.push_back(std::move(attempt.reduce.contributions[i]));
    }
    attempt.reduce.contributions = std::move(done);
    ++history_.num_committed;
    count(attempt, 1);
  }
  void operator()(const LogVoid& x) {
    abandon();
    for (OuterAttempt& attempt : history_.attempts) {
      if (attempt.outcome != OuterAttempt::Outcome::kCommitted ||
          attempt.reduce.outer_step < x.first_outer_step) {
        continue;
      }
      attempt.outcome = OuterAttempt::Outcome::kVoid;
      --history_.num_committed;
      ++history_.num_void;
      count(attempt, -1);
    }
  }
  void operator()(const LogFinished&) {
    abandon();
    history_.is_finished = true;
  }

 private:
  void abandon() {
    if (!std::exchange(under_way_, false)) return;
    history_.attempts.back().outcome = OuterAttempt::Outcome::kAbandoned;
    ++history_.num_abandoned;
  }
  void count(const OuterAttempt& attempt, int times) {
    for (const LogContribution& contribution : attempt.reduce.contributions) {
      IslandHistory& island = history_.islands[contribution.participant.island];
      island.outer_steps += times;
      add(island.tokens, times * contribution.participant.tokens);
    }
  }

  History& history_;
  double now_ = 0;
  bool under_way_ = false;  // the last attempt
};

}  // namespace

std::int64_t OuterAttempt::tokens() const {
  std::int64_t tokens = 0;
  for (const LogContribution& x : reduce.contributions) add(tokens, x.participant.tokens);
  return tokens;
}

double OuterAttempt::loss() const {
  double sum = 0;
  for (const LogContribution& x : reduce.contributions) {
    sum += x.loss * static_cast<double>(x.participant.tokens);
  }
  return sum / static_cast<double>(std::max<std::int64_t>(tokens(), 1));
}

History tell_history(std::span<const LogRecord> records) {
  History history;
  HistoryBuilder teller(history);
  for (const LogRecord& record : records) teller.tell(record);
  return history;
}

}  // namespace atl::island
