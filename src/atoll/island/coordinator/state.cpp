#include "atoll/island/coordinator/state.h"

#include <algorithm>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/error.h"

namespace atl::island {

namespace {

void require(bool fine, const char* what, std::int64_t number) {
  if (!fine) {
    throw damaged_error(
        "the ledger contradicts itself: {} {}; `atoll runs show` says where, a copy of the ledger "
        "from before goes on from there",
        what, number);
  }
}

}  // namespace

RunState::RunState(int num_fragments, std::int64_t total_batches, PolicyPlan policy)
    : first_hashes_(static_cast<std::size_t>(num_fragments)),
      leases_(total_batches),
      policy_(std::move(policy)) {
  ATOLL_CHECK(num_fragments > 0, "a run of {} fragments", num_fragments);
}

int RunState::fragment_of(std::int64_t outer_step) const {
  return static_cast<int>(outer_step % num_fragments());
}

void RunState::apply(const LogBody& body) {
  struct Visitor {
    RunState& state;
    void operator()(const LogStarted&) const {}
    void operator()(const LogIsland& x) const {
      state.islands_[x.island] = x;
      state.ids_[x.name] = x.island;
      state.here_.insert(x.island);
    }
    void operator()(const LogLease& x) const {
      require(state.leases_.lease(x.island, x.ranges),
              "a lease of batches that are not free, to island", x.island);
    }
    void operator()(const LogReturn& x) const {
      require(state.leases_.give_back(x.island, x.ranges),
              "a return of batches that are not leased to island", x.island);
      if (x.ranges.empty()) state.here_.erase(x.island);
    }
    void operator()(const LogReduce& x) const {
      require(x.outer_step == state.outer_step(), "a reduce out of order, of outer step",
              x.outer_step);
      state.reduce_ = x;
    }
    void operator()(const LogCommit& x) const { state.apply_commit(x); }
    void operator()(const LogVoid& x) const { state.apply_void(x); }
    void operator()(const LogFinished&) const { state.was_finished_ = true; }
    void operator()(const LogPolicy&) const { state.is_policy_logged_ = true; }
  };
  std::visit(Visitor{*this}, body);
}

LogLease RunState::grant(IslandId island, std::int64_t num_batches) {
  return {.island = island, .ranges = leases_.grant(island, num_batches)};
}

void RunState::apply_commit(const LogCommit& commit) {
  require(commit.outer_step == outer_step(), "a commit out of order, of outer step",
          commit.outer_step);
  require(reduce_ && reduce_->attempt == commit.attempt,
          "a commit without its reduce, of outer step", commit.outer_step);
  RangeSet consumed;
  newest_participants_.clear();
  const bool has_results = !commit.results.empty();
  require(!has_results || commit.results.size() == reduce_->contributions.size(),
          "a commit without the results of all its exchanges, of outer step", commit.outer_step);
  std::map<IslandId, StateHash> results;
  for (std::size_t i = 0; i < reduce_->contributions.size(); ++i) {
    const LogContribution& contribution = reduce_->contributions[i];
    if (has_results && commit.results[i] == StateHash{}) continue;
    if (has_results) results[contribution.participant.island] = commit.results[i];
    newest_participants_.insert(contribution.participant.island);
    require(leases_.consume(contribution.participant.island, contribution.consumed),
            "batches committed that were not leased, in outer step", commit.outer_step);
    for (const BatchRange& range : contribution.consumed) consumed.add(range);
  }
  policy_.committed(*reduce_, commit);
  arrivals_ += static_cast<std::int64_t>(newest_participants_.size());
  commits_.push_back({.hash = commit.hash,
                      .consumed = consumed.ranges(),
                      .participants = {newest_participants_.begin(), newest_participants_.end()},
                      .results = std::move(results)});
  reduce_.reset();
}

void RunState::apply_void(const LogVoid& voided) {
  require(voided.first_outer_step >= 0 && voided.first_outer_step <= outer_step(),
          "a void of what was not committed, from outer step", voided.first_outer_step);
  while (outer_step() > voided.first_outer_step) {
    require(leases_.unconsume(commits_.back().consumed),
            "a void of batches not consumed, outer step", outer_step() - 1);
    arrivals_ -= static_cast<std::int64_t>(commits_.back().participants.size());
    policy_.forget_newest();
    for (const auto& [island, result] : commits_.back().results) void_results_.insert(result);
    commits_.pop_back();
  }
  newest_participants_.clear();
  if (!commits_.empty()) {
    const std::vector<IslandId>& all = commits_.back().participants;
    newest_participants_.insert(all.begin(), all.end());
  }
  reduce_.reset();
}

std::optional<StateHash> RunState::hash_of(int fragment, std::int64_t outer_step) const {
  // The last outer step below `outer_step` that exchanged this fragment.
  const std::int64_t P = num_fragments();
  const std::int64_t last = outer_step - 1 - (outer_step - 1 - fragment + P) % P;
  if (last < 0) return first_hashes_[static_cast<std::size_t>(fragment)];
  return commits_[static_cast<std::size_t>(last)].hash;
}

std::vector<StateHash> RunState::hashes(std::int64_t outer_step) const {
  std::vector<StateHash> all;
  for (int f = 0; f < num_fragments(); ++f) {
    const auto hash = hash_of(f, outer_step);
    if (!hash) return {};
    all.push_back(*hash);
  }
  return all;
}

bool RunState::fits(std::int64_t outer_step, std::span<const StateHash> hashes) const {
  if (outer_step < 0 || outer_step > this->outer_step()) return false;
  if (hashes.size() != first_hashes_.size()) return false;
  for (int f = 0; f < num_fragments(); ++f) {
    const auto hash = hash_of(f, outer_step);
    if (hash && *hash != hashes[static_cast<std::size_t>(f)]) return false;
  }
  return true;
}

RunState::Result RunState::newest_result(IslandId island) const {
  for (std::int64_t k = outer_step() - 1; k >= 0; --k) {
    const auto& results = commits_[static_cast<std::size_t>(k)].results;
    const auto found = results.find(island);
    if (found != results.end()) return {.outer_step = k, .hash = found->second};
  }
  return {};
}

StateHash RunState::some_result() const {
  if (is_averaged()) return commits_.back().hash;
  for (auto commit = commits_.rbegin(); commit != commits_.rend(); ++commit) {
    if (!commit->results.empty()) return commit->results.begin()->second;
  }
  return first_hashes_.front().value_or(StateHash{});
}

bool RunState::was_a_state(std::int64_t outer_step, const StateHash& hash) const {
  if (outer_step < 0 || outer_step > this->outer_step()) return false;
  if (outer_step == this->outer_step() && is_averaged()) return hash == commits_.back().hash;
  for (std::int64_t k = outer_step - 1; k >= 0; --k) {
    for (const auto& [island, result] : commits_[static_cast<std::size_t>(k)].results) {
      if (result == hash) return true;
    }
  }
  // The beginning is in no log. It is believed of who has made no outer step since, as elsewhere.
  if (!first_hashes_.front()) return outer_step == 0;
  return *first_hashes_.front() == hash;
}

bool RunState::may_be_first(const StateHash& hash) const {
  if (first_hashes_.front() || void_results_.contains(hash)) return false;
  return std::none_of(commits_.begin(), commits_.end(), [&](const CommitRecord& commit) {
    return std::any_of(commit.results.begin(), commit.results.end(),
                       [&](const auto& result) { return result.second == hash; });
  });
}

void RunState::learn(std::span<const StateHash> hashes) {
  for (int f = 0; f < num_fragments(); ++f) {
    // What was exchanged already is in the log, and no longer that of outer step 0.
    auto& first = first_hashes_[static_cast<std::size_t>(f)];
    if (outer_step() <= f && !first) first = hashes[static_cast<std::size_t>(f)];
  }
}

std::map<IslandId, Seconds> gone_since(std::span<const LogRecord> log) {
  std::map<IslandId, Seconds> gone;
  for (const LogRecord& record : log) {
    if (const auto* came = std::get_if<LogIsland>(&record.body)) {
      gone.erase(came->island);
    } else if (const auto* back = std::get_if<LogReturn>(&record.body);
               back != nullptr && back->ranges.empty()) {
      gone[back->island] = std::max(0.0, log.back().unix_seconds - record.unix_seconds);
    }
  }
  return gone;
}

std::optional<IslandId> RunState::island_named(const std::string& name) const {
  const auto found = ids_.find(name);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

}  // namespace atl::island
