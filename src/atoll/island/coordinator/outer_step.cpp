// Which pseudo-gradients count: the outer steps of Coordinator.

#include <algorithm>
#include <cmath>
#include <map>

#include "atoll/base/error.h"
#include "atoll/island/coordinator/coordinator.h"

namespace atl::island {

namespace {

// With fewer contributors it cannot be decided which norm is wrong.
constexpr std::size_t kEnoughToJudge = 3;
// When all islands are excluded, they are tried again after so long.
constexpr Seconds kRetryAfter = 1;

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

// At the end of the run fewer islands than a fixed quorum may have batches left.
int Coordinator::quorum() const {
  const int in_round = members_.count(Phase::kReady) + members_.count(Phase::kTraining) +
                       members_.count(Phase::kEarly) + members_.num_counting_suspects();
  if (options_.plan.is_async) return 1;
  if (is_averaging()) return std::max(1, in_round);
  // Who exchanges with nobody keeps for itself what it has trained.
  const int least = options_.plan.is_gossip ? std::min(2, in_round) : 1;
  if (options_.plan.quorum <= 0) return std::max({1, least, (in_round + 1) / 2});
  if (state_.leases().num_free() > 0) return options_.plan.quorum;
  return std::min(options_.plan.quorum, std::max(1, in_round));
}

// Takes all steps that have become possible. Called after each event.
void Coordinator::advance() {
  if (!halted_.empty() || is_finished()) return;
  if (!has_begun_) begin_run();
  if (reducing_) {
    const auto count = static_cast<int>(reducing_->participants.size());
    const bool are_exchanges = !reducing_->exchanges.empty();
    if (are_exchanges ? !settle_exchanges() : reducing_->num_prepared < count) return;
    if (!are_exchanges) judge();
    if (reducing_ || !halted_.empty() || is_finished()) return;
  }
  const int ready = members_.count(Phase::kReady);
  const int waited = members_.count(Phase::kTraining) + members_.num_awaited();
  const bool is_short = ready == 0 || ready < quorum();
  if (is_short && waited == 0 && members_.count(Phase::kExcluded) > 0) {
    if (!stuck_from_) stuck_from_ = now_;
    if (now_ - *stuck_from_ < kRetryAfter) return;
    stuck_from_.reset();
    mesh_is_broken_ = false;
    for (Island& island : members_.all()) {
      if (island.phase() == Phase::kExcluded) members_.set_phase(island, Phase::kReady);
    }
    return advance();
  }
  stuck_from_.reset();
  if (is_short) {
    grace_from_.reset();
    return;
  }
  if (!grace_from_) grace_from_ = now_;
  const Seconds grace = options_.plan.is_async ? 0 : options_.plan.grace_seconds;
  if (waited > 0 && now_ - *grace_from_ < grace) return;
  if (waits_for_budget()) return;
  begin_attempt();
}

// Whether the last day has no bytes left for an exchange. Said once for each outer step.
bool Coordinator::waits_for_budget() {
  const Seconds wait =
      state_.policy().seconds_to_wait(now_ - step_began_, members_.count(Phase::kReady));
  if (wait > 0 && !is_told_of_budget_) {
    notice(
        fmt::format("outer step {} waits for {:.0f} s: an exchange more would exceed the bytes "
                    "that outer.day_mb allows in a day",
                    state_.outer_step(), wait));
  }
  is_told_of_budget_ = wait > 0;
  return wait > 0;
}

// The islands whose pseudo-gradients are admitted, by number: not those with outlying norms.
std::vector<IslandId> Coordinator::admit() {
  std::vector<IslandId> ready;
  std::vector<double> norms;
  for (const Island& island : members_.all()) {
    if (island.state() != IslandState::kActive || island.phase() != Phase::kReady) continue;
    ready.push_back(island.id);
    norms.push_back(island.ready->norm);
  }
  if (ready.size() < kEnoughToJudge) return ready;
  const double most = options_.max_norm_ratio * median_of(norms);
  std::vector<IslandId> admitted;
  for (const IslandId id : ready) {
    const double norm = members_[id].ready->norm;
    if (norm <= most) {
      admitted.push_back(id);
    } else {
      strike(members_[id], fmt::format("the norm of its pseudo-gradient is {:.3g}, more than {} "
                                       "times the median",
                                       norm, options_.max_norm_ratio));
    }
  }
  return admitted;
}

std::vector<LogContribution> Coordinator::contributions(
    const std::vector<IslandId>& admitted) const {
  std::vector<LogContribution> all;
  double sum = 0;
  for (const IslandId id : admitted) {
    const Island& island = members_.all()[id - 1];
    const Ready& ready = *island.ready;
    const bool weighs_tokens =
        options_.weighs_tokens && !options_.plan.is_async && !options_.plan.is_gossip;
    const double amount = weighs_tokens ? static_cast<double>(ready.tokens) : 1;
    const double weight = amount * std::pow(options_.late_weight, island.missed);
    sum += weight;
    all.push_back({.participant = {.island = id,
                                   .address = island.address,
                                   .weight = weight,
                                   .tokens = ready.tokens},
                   .consumed = ready.consumed,
                   .loss = ready.loss,
                   .norm = ready.norm,
                   .measured = ready.measured});
  }
  for (LogContribution& contribution : all) contribution.participant.weight /= sum;
  return all;
}

void Coordinator::begin_attempt() {
  if (view_changed_) announce_view();
  const std::vector<IslandId> admitted = admit();
  if (admitted.empty()) return;
  Attempt attempt = {.participants = {}, .since = now_, .is_star = mesh_is_broken_};
  for (Island& island : members_.all()) {
    island.prepared.reset();
    if (island.state() != IslandState::kActive) continue;
    if (island.address.empty()) attempt.is_star = true;
  }
  const int fragment = state_.fragment_of(state_.outer_step());
  ++attempt_;
  LogReduce record = {.outer_step = state_.outer_step(),
                      .attempt = attempt_,
                      .fragment = fragment,
                      .contributions = contributions(admitted)};
  if (options_.plan.is_gossip && !is_averaging()) begin_exchanges(record);
  std::vector<IslandId> without_lease;
  for (const LogContribution& contribution : record.contributions) {
    attempt.participants.push_back(contribution.participant);
    const Island& island = members_[contribution.participant.island];
    if (!has_open_lease(island)) without_lease.push_back(island.id);
  }
  // Leases are as long as the policy says by now; the commit asks it again, when it is known how
  // long this exchange took.
  const RoundSchedule expected = state_.policy().decide(record).next;
  attempt.record = record;
  for (const LogContribution& one : record.contributions) {
    if (one.exchange == 0) continue;
    attempt.exchanges.resize(
        std::max(attempt.exchanges.size(), static_cast<std::size_t>(one.exchange)));
    attempt.exchanges[static_cast<std::size_t>(one.exchange) - 1].participants.push_back(
        one.participant);
  }
  append(std::move(record));
  reducing_ = std::move(attempt);
  // Leases are sent first: on a slow link they would queue behind the exchange that Reduce starts.
  find_fastest();
  begin_round(state_.outer_step() + 1, expected);
  grant(without_lease, Phase::kTraining);
  if (reducing_->exchanges.empty()) return broadcast(reduce_message(members_.all().front()));
  for (const ConnectionId to : members_.listeners()) {
    const Island& island = *members_.of_connection(to);
    send(island, reduce_message(island));
  }
}

// Of the attempt under way.
Reduce Coordinator::reduce_message(const Island& island) const {
  std::vector<Participant> participants = reducing_->participants;
  if (!reducing_->exchanges.empty()) {
    const PartnerExchange* exchange = exchange_of(island.id);
    const bool takes_part = exchange != nullptr && !exchange->is_broken;
    participants = takes_part ? exchange->participants : std::vector<Participant>();
  }
  return {.fragment = state_.fragment_of(state_.outer_step()),
          .participants = std::move(participants),
          .is_star = reducing_->is_star,
          .schedule = state_.policy().schedule(),
          .arrivals = state_.arrivals()};
}

// All participants are prepared: compares their hashes.
void Coordinator::judge() {
  // Islands that only receive count too, if they have answered in time.
  std::map<StateHash, int> votes;
  for (const Island& island : members_.all()) {
    if (island.state() == IslandState::kActive && island.prepared) ++votes[*island.prepared];
  }
  if (votes.size() == 1) return commit(votes.begin()->first);
  ++num_disagreements_;
  abandon(fmt::format("{} different results", votes.size()));
  notice(fmt::format("outer step {}, attempt {}: {} different results", state_.outer_step(),
                     attempt_, votes.size()));
  if (num_disagreements_ < 2) return;  // tried again: a bit flip does not happen twice
  const auto best = std::max_element(
      votes.begin(), votes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto num_best = std::count_if(
      votes.begin(), votes.end(), [&](const auto& vote) { return vote.second == best->second; });
  if (num_best > 1) {
    return halt(
        fmt::format("islands disagree on the result of outer step {} and there is no "
                    "majority: one of the machines computes or stores wrongly",
                    state_.outer_step()));
  }
  const StateHash right = best->first;
  for (Island& island : members_.all()) {
    const bool is_right = !island.prepared || *island.prepared == right;
    if (island.state() != IslandState::kActive || is_right) continue;
    island.claim(state_.outer_step());
    strike(island, "its results differ from those of the majority");
  }
}

void Coordinator::commit(const StateHash& hash) {
  const std::vector<Participant> participants = std::move(reducing_->participants);
  const std::int64_t outer_step = state_.outer_step();
  const Seconds exchange_seconds = now_ - reducing_->since;
  const PolicyDecision decision = state_.policy().decide(reducing_->record, exchange_seconds);
  Commit message = {.fragment = state_.fragment_of(outer_step),
                    .hash = hash,
                    .participants = participants,
                    .next = decision.next};
  // The stamp has the outer step that ends, so it is made before the commit is logged.
  const Stamp stamp_of_step = stamp();
  append(LogCommit{.outer_step = outer_step,
                   .attempt = attempt_,
                   .hash = hash,
                   .exchange_seconds = exchange_seconds,
                   .round_seconds = now_ - step_began_,
                   .next = state_.policy().is_fixed() ? std::nullopt : std::optional(decision.next),
                   .why = decision.why});
  if (!decision.why.empty())
    notice(fmt::format("outer step {}: {}", outer_step + 1, decision.why), false);
  if (auto to = members_.listeners(); !to.empty()) {
    actions_.push_back(SendToIslands{std::move(to), {stamp_of_step, std::move(message)}});
  }
  reducing_.reset();
  grace_from_.reset();
  attempt_ = 0;
  num_disagreements_ = 0;
  step_began_ = now_;
  const bool is_last = is_finished();
  for (Island& island : members_.all()) {
    ++island.missed;
    const bool hears =
        island.state() == IslandState::kActive || island.state() == IslandState::kSuspect;
    island.own_state = hears ? hash : StateHash{};
    // An island that still fetches keeps its sources waiting: they must not leave before it is
    // done.
    if (is_last) island.is_behind = island.prepared != hash;
    // Through the coordinator nobody says what has come.
    if (island.state() != IslandState::kSyncing) continue;
    island.overtaken += island.is_fetching || island.putter != kNobody ? 1 : 0;
    island.is_fetching = false;
  }
  for (const Participant& participant : participants) {
    Island& island = members_[participant.island];
    island.ready.reset();
    if (island.detector) island.detector->trust();
    island.missed = island.drops = island.strikes = island.overtaken = 0;
    members_.set_phase(island, has_open_lease(island) ? Phase::kTraining : Phase::kIdle);
  }
  if (is_last) return finish();
  for (Island& island : members_.all()) {
    if (island.phase() == Phase::kEarly) members_.set_phase(island, Phase::kTraining);
    const bool is_late = island.phase() == Phase::kReady || island.phase() == Phase::kExcluded;
    if (is_late) drop_late(island, "the outer step was committed without it");
  }
  find_fastest();
  begin_round(state_.outer_step(), state_.policy().schedule());
  grant_idle(Phase::kTraining);
}

// The island keeps its batches: they are part of its next pseudo-gradient. An asynchronous one that
// has nothing else to train on hands the same in again, for the next outer step.
void Coordinator::drop_late(Island& island, const std::string& why) {
  const bool has_lease = island.ready && has_open_lease(island);
  const bool has_work = island.ready && !island.ready->consumed.empty();
  if (!options_.plan.is_async) ++island.drops;
  island.ready.reset();
  send(island, Dropped{.why = why});
  if (options_.plan.is_async && !has_lease && has_work) {
    members_.set_phase(island, Phase::kTraining);
    return send(island, Lease{.round_begin = round_begin_});
  }
  members_.set_phase(island, has_lease ? Phase::kTraining : Phase::kIdle);
  if (!has_lease && island.state() == IslandState::kActive) grant({island.id}, Phase::kTraining);
}

void Coordinator::abandon(const std::string& why) {
  broadcast(AbandonReduce{.why = why});
  reducing_.reset();
}

void Coordinator::exclude(Island& island) {
  if (island.state() == IslandState::kActive && island.phase() == Phase::kReady) {
    members_.set_phase(island, Phase::kExcluded);
  }
}

void Coordinator::leave_attempt(Island& island, const std::string& why) {
  if (!reducing_ || !takes_part(island.id)) return;
  if (PartnerExchange* exchange = exchange_of(island.id)) return break_exchange(*exchange, why);
  abandon(why);
}

void Coordinator::halt(const std::string& why) {
  halted_ = why;
  notice(why);
  for (const Island& island : members_.all()) send(island, Finish{.why = why, .is_done = false});
}

}  // namespace atl::island
