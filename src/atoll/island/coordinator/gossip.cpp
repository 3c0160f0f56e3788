// Outer steps of partners: where islands gossip, each has a state of its own, which only the result
// of an exchange or a fetch changes. An outer step has several exchanges (protocol/partners.h),
// which fail one by one. The last outer step of a run makes the mean of all states, and is as any
// other algorithm's.

#include <algorithm>
#include <map>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/hash.h"
#include "atoll/island/coordinator/coordinator.h"
#include "atoll/island/protocol/partners.h"

namespace atl::island {

namespace {

bool is_in(const LogReduce& record, IslandId island) {
  return std::any_of(record.contributions.begin(), record.contributions.end(),
                     [&](const LogContribution& one) { return one.participant.island == island; });
}

}  // namespace

// Whether all batches are committed, and the mean of all states is still to be made.
bool Coordinator::is_averaging() const {
  return options_.plan.is_gossip && state_.leases().is_done() && !state_.is_averaged();
}

// ---- which state is whose ----

// Whether the island can go on with a state that it says it had when so many outer steps were
// committed. Not with one from before its newest exchange, whose partner has the result: what it
// handed in then would be in one of two states only. Who has never been in an exchange proves
// nothing by its state once there were some.
bool Coordinator::is_own_state(IslandId island, std::int64_t outer_step,
                               const StateHash& hash) const {
  if (!state_.was_a_state(outer_step, hash)) return false;
  if (state_.is_averaged()) return outer_step == state_.outer_step();
  if (state_.outer_step() == 0) return true;
  const std::int64_t newest = state_.newest_result(island).outer_step;
  return newest >= 0 && newest < outer_step;
}

// `prepared`: the result of its next outer step, which lies beside its state; zero: none.
Coordinator::WantedState Coordinator::wanted_state(Island& island, const StateHash& prepared) {
  WantedState wanted;
  if (!options_.plan.is_gossip) {
    wanted.sources = sources(island.id);
    wanted.hashes = state_.hashes(state_.outer_step());
    wanted.contributed = state_.contributed(island.id);
    return wanted;
  }
  const RunState::Result newest = state_.newest_result(island.id);
  StateHash hash;
  if (state_.is_averaged()) {
    hash = state_.newest_hash();
    wanted.is_there = island.own_state == hash;
    wanted.contributed = state_.contributed(island.id);
  } else if (island.own_state != StateHash{}) {
    hash = island.own_state;
    wanted.is_there = true;
  } else {
    // The result of its own newest exchange, where it has that or its partner does.
    wanted.contributed = newest.outer_step >= 0 && newest.outer_step == island.claimed_step;
    const bool has_it = wanted.contributed && prepared == newest.hash;
    const bool is_left = newest.outer_step >= 0 && !sources(island.id, newest.hash).empty();
    hash = has_it || is_left ? newest.hash : StateHash{};
    wanted.is_there = has_it;
  }
  for (std::size_t i = 0; i < members_.size() && hash == StateHash{}; ++i) {
    const Island& other = members_.all()[(next_source_ + i) % members_.size()];
    if (other.state() == IslandState::kActive && other.id != island.id) hash = other.own_state;
  }
  if (hash == StateHash{}) hash = newest.outer_step >= 0 ? newest.hash : state_.some_result();
  if (hash != StateHash{}) wanted.hashes = {hash};
  wanted.sources = sources(island.id, hash);
  island.wanted = hash;
  return wanted;
}

std::string Coordinator::fault_of_synced(const Island& island, const Synced& synced) const {
  const bool fits = options_.plan.is_gossip && island.wanted != StateHash{}
                        ? synced.hashes.front() == island.wanted
                        : state_.fits(synced.outer_step, synced.hashes);
  if (synced.outer_step == state_.outer_step() && fits) return "";
  return "the state that it fetched has another hash than the run's";
}

// Nobody is active. The island with the newest state goes on with it, and the rest with their own
// where they have one that stands.
void Coordinator::offer_newest(const Island& best) {
  for (Island& island : members_.all()) {
    if (island.state() != IslandState::kSyncing) continue;
    const bool is_known = island.claimed_step >= 0 && !island.claimed.empty();
    const bool is_own =
        island.id == best.id ||
        (is_known && is_own_state(island.id, island.claimed_step, island.claimed.front()));
    island.own_state = is_own ? island.claimed.front() : StateHash{};
  }
  // First the best: it is the source of the rest.
  resync(members_[best.id], "it is the newest state left", true);
  for (Island& island : members_.all()) {
    if (island.state() != IslandState::kSyncing || island.id == best.id) continue;
    resync(island, fmt::format("the newest state left is that of {}", best.name), true);
  }
}

// ---- exchanges ----

void Coordinator::begin_exchanges(LogReduce& record) {
  std::vector<IslandId> ready;
  for (const LogContribution& one : record.contributions) ready.push_back(one.participant.island);
  const std::vector<int> exchanges = exchanges_of(record.outer_step, ready);
  std::map<int, int> sizes;
  for (const int exchange : exchanges) ++sizes[exchange];
  for (std::size_t i = 0; i < exchanges.size(); ++i) {
    record.contributions[i].exchange = exchanges[i];
    record.contributions[i].participant.weight = 1.0 / sizes[exchanges[i]];
  }
}

const Coordinator::PartnerExchange* Coordinator::exchange_of(IslandId island) const {
  if (!reducing_) return nullptr;
  for (const PartnerExchange& exchange : reducing_->exchanges) {
    for (const Participant& one : exchange.participants) {
      if (one.island == island) return &exchange;
    }
  }
  return nullptr;
}

Coordinator::PartnerExchange* Coordinator::exchange_of(IslandId island) {
  return const_cast<PartnerExchange*>(std::as_const(*this).exchange_of(island));
}

// With the answer of the last of them an exchange is done, whoever dies then.
void Coordinator::prepared_exchange(Island& island) {
  PartnerExchange* exchange = exchange_of(island.id);
  if (exchange == nullptr || exchange->is_broken || exchange->result) return;
  for (const Participant& one : exchange->participants) {
    if (!members_[one.island].prepared) return;
  }
  const StateHash result = *members_[exchange->participants.front().island].prepared;
  bool are_equal = true;
  for (const Participant& one : exchange->participants) {
    are_equal &= *members_[one.island].prepared == result;
  }
  if (!are_equal) return disagree(*exchange);
  for (const Participant& one : exchange->participants) members_[one.island].disagreements = 0;
  exchange->result = result;
}

// One of them computes or stores wrongly: the one that disagrees with whomever it meets.
void Coordinator::disagree(const PartnerExchange& exchange) {
  std::vector<IslandId> islands;
  std::vector<IslandId> wrong;
  for (const Participant& one : exchange.participants) {
    islands.push_back(one.island);
    if (++members_[one.island].disagreements >= options_.max_strikes) wrong.push_back(one.island);
  }
  notice(fmt::format("outer step {}, attempt {}: different results of {} and {}",
                     state_.outer_step(), attempt_, members_[islands.front()].name,
                     members_[islands.back()].name));
  break_exchange(*exchange_of(islands.front()), "different results");
  if (wrong.size() > 1) {
    return halt(
        fmt::format("islands disagree on the results of their exchanges, the last of them in outer "
                    "step {}, and there is no majority: one of the machines computes or stores "
                    "wrongly",
                    state_.outer_step()));
  }
  for (const IslandId id : wrong) {
    Island& island = members_[id];
    const std::string why = "its results differ from those of all its partners";
    notice(fmt::format("{}: {}", island.name, why));
    island.is_evicted = true;
    send(island, Finish{.why = why, .is_done = false});
    turn_out(island, why);
  }
}

// Its islands keep their states, and what they have to hand in. The others go on.
void Coordinator::break_exchange(PartnerExchange& exchange, const std::string& why) {
  if (exchange.result || exchange.is_broken) return;
  exchange.is_broken = true;
  for (const Participant& one : exchange.participants) {
    Island& island = members_[one.island];
    island.prepared.reset();
    send(island, reduce_message(island));
  }
  if (exchange.participants.size() < 2) return;
  notice(fmt::format("outer step {}: the exchange of {} and {} comes to nothing: {}",
                     state_.outer_step(), members_[exchange.participants.front().island].name,
                     members_[exchange.participants.back().island].name, why),
         false);
}

// An exchange that is done is not committed before the others are. An island that comes back
// without what it handed in, or is out until then, gives back what the exchange would have
// consumed.
void Coordinator::undo_exchange(IslandId island, const RangeSet& back) {
  PartnerExchange* exchange = exchange_of(island);
  if (exchange == nullptr || !exchange->result) return;
  for (const LogContribution& one : reducing_->record.contributions) {
    if (one.participant.island != island) continue;
    const bool is_needed =
        std::any_of(one.consumed.begin(), one.consumed.end(),
                    [&](const BatchRange& range) { return back.overlaps(range); });
    if (!is_needed) return;
  }
  exchange->result.reset();
  break_exchange(*exchange, members_[island].name + " gives back its batches");
}

// Commits what was done once nothing is under way. False: there is.
bool Coordinator::settle_exchanges() {
  bool is_any = false;
  for (const PartnerExchange& exchange : reducing_->exchanges) {
    if (!exchange.result && !exchange.is_broken) return false;
    is_any |= exchange.result.has_value();
  }
  if (is_any) {
    commit_exchanges();
  } else {
    abandon("no exchange was made");
  }
  return true;
}

void Coordinator::commit_exchanges() {
  const LogReduce record = reducing_->record;
  LogCommit committed = {.outer_step = state_.outer_step(),
                         .attempt = attempt_,
                         .exchange_seconds = now_ - reducing_->since,
                         .round_seconds = now_ - step_began_};
  for (const LogContribution& one : record.contributions) {
    const PartnerExchange* exchange = exchange_of(one.participant.island);
    committed.results.push_back(exchange->result.value_or(StateHash{}));
  }
  const Hash128 all =
      hash_bytes(committed.results.data(), committed.results.size() * sizeof(StateHash));
  committed.hash = {all.high, all.low};
  // The stamps have the outer step that ends, so they are made before the commit is logged.
  for (std::size_t i = 0; i < record.contributions.size(); ++i) {
    if (committed.results[i] == StateHash{}) continue;
    members_[record.contributions[i].participant.island].own_state = committed.results[i];
  }
  for (const ConnectionId to : members_.listeners()) {
    const Island& island = *members_.of_connection(to);
    send(island, Commit{.fragment = 0,
                        .hash = island.own_state,
                        .participants = reduce_message(island).participants,
                        .next = state_.policy().schedule()});
  }
  append(committed);
  reducing_.reset();
  grace_from_.reset();
  attempt_ = 0;
  step_began_ = now_;
  for (Island& island : members_.all()) {
    ++island.missed;
    if (island.state() != IslandState::kSyncing) continue;
    island.overtaken += island.is_fetching || island.putter != kNobody ? 1 : 0;
    island.is_fetching = false;
  }
  for (std::size_t i = 0; i < record.contributions.size(); ++i) {
    Island& island = members_[record.contributions[i].participant.island];
    if (committed.results[i] == StateHash{}) continue;
    island.missed = island.drops = island.strikes = island.overtaken = 0;
    if (island.state() != IslandState::kActive || !island.ready) continue;
    island.ready.reset();
    if (island.detector) island.detector->trust();
    members_.set_phase(island, has_open_lease(island) ? Phase::kTraining : Phase::kIdle);
  }
  for (Island& island : members_.all()) {
    if (island.phase() == Phase::kEarly) members_.set_phase(island, Phase::kTraining);
    const bool is_late = island.phase() == Phase::kReady || island.phase() == Phase::kExcluded;
    if (!is_late) continue;
    const int drops = island.drops;
    const bool took_part = is_in(record, island.id);
    drop_late(island, took_part ? "its exchange came to nothing"
                                : "the outer step was committed without it");
    if (took_part) island.drops = drops;  // it was in time
  }
  find_fastest();
  begin_round(state_.outer_step(), state_.policy().schedule());
  grant_idle(Phase::kTraining);
}

}  // namespace atl::island
