#include "atoll/island/simulation/audit.h"

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/base/hash.h"
#include "atoll/island/protocol/partners.h"

namespace atl::island {

namespace {

// One fault may show in thousands of ways; the first ones say enough.
constexpr std::size_t kMaxViolations = 20;

StateHash hash_of_words(const std::vector<std::uint64_t>& words) {
  const Hash128 hash = hash_bytes(words.data(), words.size() * sizeof(std::uint64_t));
  return {hash.high, hash.low};
}

std::uint64_t bits_of(double value) {
  return static_cast<std::uint64_t>(value * 0x1p53);
}

}  // namespace

StateHash simulated_delta(IslandId island, const StateHash& base,
                          const std::vector<BatchRange>& consumed) {
  std::vector<std::uint64_t> words = {island, base.high, base.low};
  for (const BatchRange& range : consumed) {
    words.push_back(static_cast<std::uint64_t>(range.begin));
    words.push_back(static_cast<std::uint64_t>(range.end));
  }
  return hash_of_words(words);
}

StateHash simulated_outer_step(const StateHash& base, const std::vector<Participant>& participants,
                               const std::vector<StateHash>& deltas) {
  std::vector<std::uint64_t> words = {base.high, base.low};
  for (std::size_t i = 0; i < participants.size(); ++i) {
    words.insert(words.end(), {participants[i].island, bits_of(participants[i].weight),
                               deltas[i].high, deltas[i].low});
  }
  return hash_of_words(words);
}

StateHash simulated_first_state(int fragment) {
  return hash_of_words({static_cast<std::uint64_t>(fragment)});
}

void SimulationAudit::violation(std::string text, Seconds now) {
  if (violations_.size() < kMaxViolations) {
    violations_.push_back(fmt::format("at {:.3f} s: {}", now, text));
  }
}

StateHash SimulationAudit::fragment_hash(int fragment, std::int64_t outer_step) const {
  for (std::int64_t k = outer_step - 1; k >= 0; --k) {
    if (k % plan_.num_fragments == fragment) return commits_[static_cast<std::size_t>(k)].hash;
  }
  return simulated_first_state(fragment);
}

std::vector<StateHash> SimulationAudit::hashes() const {
  std::vector<StateHash> all;
  for (int f = 0; f < plan_.num_fragments; ++f) all.push_back(fragment_hash(f, outer_step()));
  return all;
}

void SimulationAudit::appended(const LogBody& body, Seconds now) {
  if (const auto* started = std::get_if<LogStarted>(&body)) {
    if (started->fence <= fence_) violation("the fence did not grow", now);
    fence_ = started->fence;
  } else if (const auto* lease = std::get_if<LogLease>(&body)) {
    for (const BatchRange& range : lease->ranges) {
      if (all_leased_.overlaps(range) || consumed_.overlaps(range)) {
        violation(fmt::format("batches {}-{} leased to island {} are not free", range.begin,
                              range.end, lease->island),
                  now);
      }
      leased_[lease->island].add(range);
      all_leased_.add(range);
    }
  } else if (const auto* back = std::get_if<LogReturn>(&body)) {
    for (const BatchRange& range : back->ranges) {
      if (!leased_[back->island].contains(range)) {
        violation("batches returned that were not leased", now);
      }
      leased_[back->island].remove(range);
      all_leased_.remove(range);
    }
  } else if (const auto* reduce = std::get_if<LogReduce>(&body)) {
    if (reduce->outer_step != outer_step()) violation("a reduce of another outer step", now);
    reduce_ = *reduce;
    ++num_attempts_;
  } else if (const auto* done = std::get_if<LogCommit>(&body)) {
    commit(*done, now);
  } else if (const auto* voided = std::get_if<LogVoid>(&body)) {
    unmake(*voided, now);
  }
}

void SimulationAudit::commit(const LogCommit& commit, Seconds now) {
  if (commit.outer_step != outer_step() || !reduce_ || reduce_->attempt != commit.attempt) {
    return violation(
        fmt::format("outer step {} committed where {} is due", commit.outer_step, outer_step()),
        now);
  }
  CommitSeen seen = {.hash = commit.hash, .participants = {}, .consumed = {}};
  const int fragment = static_cast<int>(commit.outer_step % plan_.num_fragments);
  const StateHash base = fragment_hash(fragment, commit.outer_step);
  std::vector<Participant> participants;
  std::vector<StateHash> deltas;
  const bool has_exchanges = !commit.results.empty();
  if (plan_.is_gossip) check_exchanges(commit, now);
  for (std::size_t i = 0; i < reduce_->contributions.size(); ++i) {
    const LogContribution& contribution = reduce_->contributions[i];
    const IslandId island = contribution.participant.island;
    if (has_exchanges && commit.results[i] == StateHash{}) continue;
    if (has_exchanges) seen.results[island] = commit.results[i];
    seen.participants.insert(island);
    participants.push_back(contribution.participant);
    deltas.push_back(simulated_delta(island, base, contribution.consumed));
    for (const BatchRange& range : contribution.consumed) {
      if (consumed_.overlaps(range)) {
        violation(fmt::format("batches {}-{} committed twice", range.begin, range.end), now);
      }
      if (!leased_[island].contains(range)) {
        violation(fmt::format("batches {}-{} committed by island {}, which they are not leased to",
                              range.begin, range.end, island),
                  now);
      }
      leased_[island].remove(range);
      all_leased_.remove(range);
      consumed_.add(range);
      seen.consumed.push_back(range);
    }
  }
  if (is_exact_ && !plan_.is_gossip &&
      simulated_outer_step(base, participants, deltas) != commit.hash) {
    violation(fmt::format("outer step {} is not what its contributions give", commit.outer_step),
              now);
  }
  check_schedule(commit, now);
  commits_.push_back(std::move(seen));
  ++num_commits_;
  longest_pause_ = std::max(longest_pause_, now - last_commit_);
  last_commit_ = now;
  reduce_.reset();
}

// Partners are who they must be, and each exchange gives what its islands handed in, on states that
// stand; no batch is in two.
void SimulationAudit::check_exchanges(const LogCommit& commit, Seconds now) {
  const auto& all = reduce_->contributions;
  std::map<int, std::vector<Participant>> participants;
  std::map<int, std::vector<StateHash>> deltas;
  std::vector<IslandId> ready;
  std::vector<int> exchanges;
  for (const LogContribution& one : all) {
    const IslandId island = one.participant.island;
    const StateHash base = bases_[island][commit.outer_step];
    if (!was_a_state(base)) {
      violation(
          fmt::format("island {} hands in what it trained on a state that does not stand", island),
          now);
    }
    participants[one.exchange].push_back(one.participant);
    deltas[one.exchange].push_back(simulated_delta(island, base, one.consumed));
    ready.push_back(island);
    exchanges.push_back(one.exchange);
  }
  const bool is_mean = commit.results.empty();
  if (!is_mean && exchanges != exchanges_of(commit.outer_step, ready)) {
    violation(fmt::format("outer step {} has other partners than it must", commit.outer_step), now);
  }
  if (is_mean && consumed_.num_batches() != plan_.total_batches) {
    violation("the mean of all states before the end of the run", now);
  }
  for (std::size_t i = 0; is_exact_ && i < all.size(); ++i) {
    const StateHash result = is_mean ? commit.hash : commit.results[i];
    const int exchange = all[i].exchange;
    const bool is_right =
        result == StateHash{} ||
        result == simulated_outer_step({}, participants[exchange], deltas[exchange]);
    if (is_right) continue;
    violation(fmt::format("outer step {} is not what its contributions give", commit.outer_step),
              now);
  }
}

bool SimulationAudit::was_a_state(const StateHash& hash) const {
  if (hash == simulated_first_state(0)) return true;
  return std::any_of(commits_.rbegin(), commits_.rend(), [&](const CommitSeen& seen) {
    return std::any_of(seen.results.begin(), seen.results.end(),
                       [&](const auto& result) { return result.second == hash; });
  });
}

// Within its bounds whatever islands claim, and what the policy says when it is asked again.
void SimulationAudit::check_schedule(const LogCommit& commit, Seconds now) {
  const PolicyPlan& plan = policy_.plan();
  if (policy_.is_fixed() != !commit.next) violation("a schedule where none belongs", now);
  if (commit.next) {
    const RoundSchedule& next = *commit.next;
    const bool is_within = next.inner_steps >= plan.min_inner_steps &&
                           next.inner_steps <= plan.max_inner_steps && next.overlap >= 0 &&
                           next.overlap <= next.inner_steps && next.outer_lr > 0 &&
                           next.outer_lr <= std::max(1.0, plan.base.outer_lr) &&
                           next.predicted_seconds >= 0 && next.predicted_seconds < 1e6;
    if (!is_within) {
      violation(fmt::format("outer step {} has the schedule {}", commit.outer_step + 1,
                            to_text(next, plan.fragments)),
                now);
    }
    if (next != policy_.decide(*reduce_, commit.exchange_seconds).next) {
      violation(fmt::format("outer step {} has another schedule than its policy says",
                            commit.outer_step + 1),
                now);
    }
  }
  policy_.committed(*reduce_, commit);
}

void SimulationAudit::unmake(const LogVoid& voided, Seconds now) {
  if (voided.first_outer_step > outer_step()) violation("a void of what was not committed", now);
  while (outer_step() > voided.first_outer_step) {
    for (const BatchRange& range : commits_.back().consumed) consumed_.remove(range);
    voided_[outer_step() - 1].push_back(commits_.back());
    commits_.pop_back();
    policy_.forget_newest();
    ++num_voids_;
  }
  reduce_.reset();
}

void SimulationAudit::swapped(IslandId island, std::int64_t outer_step, const StateHash& hash,
                              bool was_mine, Seconds now) {
  const auto result_of = [&](const CommitSeen& seen) {
    const auto found = seen.results.find(island);
    return found != seen.results.end() ? found->second : seen.hash;
  };
  // An island that missed a void may still take a state that was committed before it.
  for (const CommitSeen& seen : voided_[outer_step]) {
    if (result_of(seen) == hash && was_mine == seen.participants.contains(island)) return;
    if (plan_.is_gossip && !was_mine) return;
  }
  if (outer_step >= this->outer_step()) {
    return violation(
        fmt::format("island {} took outer step {}, which is not committed", island, outer_step),
        now);
  }
  const CommitSeen& seen = commits_[static_cast<std::size_t>(outer_step)];
  // Who was in no exchange keeps what it had.
  const bool is_kept = plan_.is_gossip && !was_mine && !seen.results.empty() && was_a_state(hash);
  if (result_of(seen) != hash && !is_kept) {
    violation(
        fmt::format("island {} took another outer step {} than was committed", island, outer_step),
        now);
  }
  if (was_mine != seen.participants.contains(island)) {
    violation(fmt::format("island {} is wrong about its part in outer step {}", island, outer_step),
              now);
  }
}

void SimulationAudit::ended(IslandId island, std::int64_t outer_step,
                            const std::vector<StateHash>& hashes, Seconds now) {
  const std::vector<StateHash> last = plan_.is_gossip && !commits_.empty()
                                          ? std::vector<StateHash>{commits_.back().hash}
                                          : this->hashes();
  if (outer_step != this->outer_step() || hashes != last) {
    violation(fmt::format("island {} ended with the state of outer step {}, not that of {}", island,
                          outer_step, this->outer_step()),
              now);
  }
}

void SimulationAudit::finish(bool is_finished, Seconds now) {
  if (!is_finished) return;
  if (consumed_.num_batches() != plan_.total_batches) {
    violation(
        fmt::format("{} of {} batches are committed", consumed_.num_batches(), plan_.total_batches),
        now);
  }
  if (all_leased_.num_batches() > 0) violation("batches are leased after the end", now);
}

}  // namespace atl::island
