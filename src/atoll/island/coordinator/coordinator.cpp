#include "atoll/island/coordinator/coordinator.h"

#include <algorithm>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/island/client/delta_pieces.h"

namespace atl::island {

Coordinator::Coordinator(const CoordinatorOptions& options, std::uint64_t fence,
                         std::span<const LogRecord> log)
    : options_(options),
      fence_(fence),
      state_(options.plan.num_fragments,
             options.plan.total_batches > 0 ? options.plan.total_batches : kEndless,
             options.plan.policy) {
  for (const LogRecord& record : log) state_.apply(record.body);
  for (const auto& [id, island] : state_.islands()) {
    if (id != members_.size() + 1) {
      throw damaged_error("the ledger has an island {} and none numbered {}", id,
                          members_.size() + 1);
    }
    members_.add(id, island.name, island.address);
  }
  attempt_ = state_.last_attempt();
  gone_ = gone_since(log);
}

std::vector<CoordinatorAction> Coordinator::handle(const CoordinatorEvent& event) {
  now_ = std::max(now_, event.now);
  if (!is_started_) start();
  std::visit([this](const auto& what) { on(what); }, event.what);
  advance();
  // Records come before all other actions, so that they can be appended at once: no island hears of
  // a decision before all of them are in the log.
  std::stable_partition(actions_.begin(), actions_.end(), [](const CoordinatorAction& action) {
    return std::holds_alternative<AppendToLog>(action);
  });
  return std::exchange(actions_, {});
}

// Waits for islands that hold leases: they were there when the last coordinator ended. At the end
// of the run it also waits for all others that were there or left lately: they may be fetching the
// state or restarting.
void Coordinator::start() {
  is_started_ = true;
  has_begun_ = state_.was_begun();
  step_began_ = now_;
  if (!state_.policy().is_fixed() && !state_.is_policy_logged()) {
    append(LogPolicy{.plan = options_.plan.policy});
  }
  begin_round(state_.outer_step(), state_.policy().schedule());
  if (is_finished() && !state_.was_finished()) append(LogFinished{});
  for (Island& island : members_.all()) {
    const bool has_part = !state_.leases().held_by(island.id).empty() ||
                          (is_finished() && state_.contributed(island.id));
    const auto gone = gone_.find(island.id);
    if (!has_part && gone != gone_.end()) island.suspect_since = now_ - gone->second;
    if (!has_part && !state_.is_here(island.id)) continue;
    members_.set_state(island, IslandState::kSuspect);
    members_.set_suspect(island, has_part, has_part);
    island.suspect_since = now_;
  }
  gone_.clear();
}

void Coordinator::on(const ConnectionOpened& event) {
  unjoined_[event.connection] = now_;
}

void Coordinator::on(const ConnectionClosed& event) {
  unjoined_.erase(event.connection);
  if (Island* island = members_.of_connection(event.connection)) {
    lose_connection(*island, event.why.empty() ? "its connection ended" : event.why);
  }
}

void Coordinator::on(const BytesCame& event) {
  note_heard(event.from, now_);
}

// A suspect stays suspect until a message of its own comes.
void Coordinator::note_heard(const std::vector<IslandId>& islands, Seconds when) {
  for (const IslandId id : islands) {
    const bool is_known = id >= 1 && id <= members_.size() && members_[id].detector;
    if (is_known) members_[id].detector->heard_by_others(when);
  }
}

void Coordinator::on(const ClockTicked&) {
  for (auto it = unjoined_.begin(); it != unjoined_.end();) {
    if (now_ - it->second < options_.join_within) {
      ++it;
      continue;
    }
    actions_.push_back(CloseConnection{it->first, "no Join within its time"});
    it = unjoined_.erase(it);
  }
  for (Island& island : members_.all()) watch(island);
  if (reducing_ && now_ - reducing_->since > options_.reduce_timeout &&
      !reducing_->exchanges.empty()) {
    for (PartnerExchange& exchange : reducing_->exchanges) {
      break_exchange(exchange, fmt::format("not done within {:.0f} s", options_.reduce_timeout));
    }
  } else if (reducing_ && now_ - reducing_->since > options_.reduce_timeout) {
    const std::vector<Participant> participants = reducing_->participants;
    const bool some_are_done = reducing_->num_prepared > 0;
    abandon(fmt::format("not done within {:.0f} s", options_.reduce_timeout));
    for (const Participant& participant : participants) {
      Island& island = members_[participant.island];
      if (some_are_done && !island.prepared) exclude(island);
    }
  }
  find_newest_state();
  if (is_finished()) part();
}

void Coordinator::on(const ConnectionReceived& event) {
  const auto& [stamp, body] = event.message;
  if (const auto* request = std::get_if<Join>(&body)) {
    if (unjoined_.erase(event.connection) > 0) join(event.connection, *request);
    return;  // a second one says nothing new
  }
  Island* island = members_.of_connection(event.connection);
  // Drops messages for an earlier coordinator, repeated ones, those of islands that are out, and
  // those that name another island than their connection's.
  if (island == nullptr || stamp.sender != island->id || stamp.fence != fence_ ||
      stamp.sequence <= island->last_sequence) {
    return;
  }
  island->last_sequence = stamp.sequence;
  island->detector->heard(now_);
  const bool is_up_to_date = stamp.outer_step >= state_.outer_step();
  if (is_up_to_date) island->is_behind = false;
  if (island->state() == IslandState::kSuspect) {
    island->detector->falsely_suspected();
    island->is_behind = !is_up_to_date;
    members_.set_state(*island, IslandState::kActive);
    view_changed_ = true;
    lost_from_.reset();
    tell_sources();
    if (has_begun_ && island->phase() == Phase::kIdle) grant({island->id}, Phase::kEarly);
  }
  std::visit([&, &stamp = stamp](const auto& what) { receive(*island, stamp, what); }, body);
}

void Coordinator::receive(Island&, const Stamp&, const Join&) {}

void Coordinator::receive(Island& island, const Stamp&, const Heartbeat& heartbeat) {
  island.detector->heard(now_, heartbeat.sent);
  if (island.state() == IslandState::kSyncing) island.is_fetching |= !heartbeat.heard.empty();
  note_heard(heartbeat.heard, now_ - island.detector->late());
  island.batches_per_second = heartbeat.batches_per_second;
}

void Coordinator::receive(Island& island, const Stamp&, const Leave& leave) {
  if (island.was_told_of_end) {
    island.has_saved = true;
    island.lacks_final_state = false;
    return part();
  }
  leave_attempt(island, fmt::format("{} leaves", island.name));
  notice(fmt::format("{} leaves: {}", island.name, leave.why), false);
  send(island, Finish{.why = "it asked to leave", .is_done = true});
  // It may be started again.
  island.suspect_since = now_;
  turn_out(island, "it left");
}

void Coordinator::receive(Island& island, const Stamp&, const Synced& synced) {
  if (island.state() != IslandState::kSyncing) return;
  if (synced.answers != island.sync_request) {
    // Its fetch ended while it was asked for the state that it had before.
    const bool was_asked = asked_ == island.id && asked_request_ == island.sync_request;
    if (!was_asked || synced.outer_step == island.claimed_step) return;
    island.claim(synced.outer_step, synced.hashes);
    const bool is_wanted = options_.plan.is_gossip && synced.hashes.front() == island.wanted;
    if (is_wanted) island.own_state = island.wanted;
    return resync(island, "it has got newer state", false);
  }
  if (synced.outer_step < state_.outer_step()) {
    const bool is_answer = asked_ == island.id && asked_request_ == synced.answers &&
                           synced.outer_step == island.claimed_step;
    island.claim(synced.outer_step, synced.hashes);
    if (is_answer && lost_from_) {
      has_confirmed_ = true;
      keep_only(island, synced.holds);
      return find_newest_state();
    }
    // It has the state that it was told to get, and others have made outer steps since.
    const bool is_own = synced.hashes.front() == island.wanted &&
                        state_.newest_result(island.id).outer_step < synced.outer_step;
    island.own_state = is_own ? island.wanted : StateHash{};
    keep_only(island, synced.holds);
    return resync(island, "the run went on meanwhile", false);
  }
  if (const std::string fault = fault_of_synced(island, synced); !fault.empty()) {
    island.claim(-1);
    island.own_state = {};
    return strike(island, fault);
  }
  island.own_state = synced.hashes.front();
  island.claim(synced.outer_step, synced.hashes);
  if (!state_.leases().holds(island.id, synced.holds)) {
    return resync(island, "it holds batches that are not its own", true);
  }
  keep_only(island, synced.holds);
  state_.learn(synced.hashes);
  activate(island);
}

void Coordinator::receive(Island& island, const Stamp& stamp, const Ready& ready) {
  if (island.state() != IslandState::kActive || island.phase() == Phase::kReady) return;
  if (is_finished()) return;  // nothing more is made of it
  island.claim(stamp.outer_step);
  if (!state_.leases().holds(island.id, ready.consumed)) {
    return resync(island, "it trained on batches that are not its own", true);
  }
  if (stamp.outer_step > state_.outer_step()) {
    island.own_state = {};
    return resync(island, "it has outer steps that the run has not", true);
  }
  if (stamp.outer_step < state_.outer_step()) {
    island.ready = ready;  // shows whether its leases have more batches than it has handed in
    return drop_late(island, fmt::format("outer step {} is over", stamp.outer_step));
  }
  const auto hashes = options_.plan.is_gossip ? std::vector<StateHash>{island.own_state}
                                              : state_.hashes(state_.outer_step());
  const auto fragment = static_cast<std::size_t>(state_.fragment_of(state_.outer_step()));
  if (hashes.empty() || hashes[fragment] != ready.base_hash) {
    island.claim(-1);
    island.own_state = {};
    return strike(island, "its pseudo-gradient is against another state than the run's");
  }
  // It says nothing of its hash when it asks for a result that is lost.
  if (options_.plan.is_gossip) island.claim(stamp.outer_step, {ready.base_hash});
  const std::string& codec = state_.policy().schedule().codec;
  if (!state_.policy().is_fixed() && ready.codec != codec) {
    return resync(island,
                  fmt::format("its pseudo-gradient is encoded by {}, and the outer step has {}",
                              ready.codec, codec),
                  true);
  }
  if (!ready.is_finite) return strike(island, "its pseudo-gradient is not finite");
  if (const std::string why = size_fault(ready, fragment); !why.empty()) {
    return strike(island, why);
  }
  const bool is_empty = ready.tokens <= 0 || ready.consumed.empty();
  if (is_empty && !is_averaging()) return drop_late(island, "nothing was trained");
  island.ready = ready;
  members_.set_phase(island, Phase::kReady);
}

// Checks a size that the coordinator may have to allocate against the size of the run's fragment.
std::string Coordinator::size_fault(const Ready& ready, std::size_t fragment) const {
  const std::vector<std::uint64_t>& sizes = options_.plan.state_sizes;
  if (fragment >= sizes.size()) return "";
  if (can_be_delta(ready.encoded_bytes, ready.chunk_bytes, sizes[fragment])) return "";
  return fmt::format(
      "its pseudo-gradient is said to be {} bytes in chunks of {}, of a fragment whose state has "
      "{}",
      ready.encoded_bytes, ready.chunk_bytes, sizes[fragment]);
}

void Coordinator::receive(Island& island, const Stamp& stamp, const Prepared& prepared) {
  const bool is_of_attempt =
      reducing_ && stamp.outer_step == state_.outer_step() && stamp.attempt == attempt_;
  if (!is_of_attempt || island.prepared) return;
  island.prepared = prepared.hash;
  if (takes_part(island.id)) ++reducing_->num_prepared;
  if (!reducing_->exchanges.empty()) prepared_exchange(island);
}

void Coordinator::receive(Island& island, const Stamp& stamp, const ReduceFailed& failed) {
  const bool has_none = island.claimed_step < 0 && stamp.outer_step == 0;
  if (!has_none && island.claimed_step != stamp.outer_step) island.claim(stamp.outer_step);
  if (island.state() == IslandState::kSyncing) {
    return resync(island, "it could not fetch the state: " + failed.why, false);
  }
  if (stamp.outer_step > state_.outer_step()) {
    island.own_state = {};
    return resync(island, "it has outer steps that the run has not", true);
  }
  if (stamp.outer_step < state_.outer_step()) {  // it asks: others committed what it has not
    const bool lacks_its_own = state_.newest_result(island.id).outer_step >= stamp.outer_step;
    if (lacks_its_own || state_.is_averaged()) island.own_state = {};
    return resync(island, "it has not got what was committed", false);
  }
  const bool is_of_attempt = reducing_ && stamp.attempt == attempt_ && takes_part(island.id);
  if (!is_of_attempt) return;
  std::vector<IslandId> missing;
  for (const IslandId other : failed.unreachable) {
    if (other != island.id && takes_part(other)) missing.push_back(other);
  }
  const bool was_star = reducing_->is_star;
  notice(fmt::format("{} could not reduce outer step {}: {}", island.name, stamp.outer_step,
                     failed.why));
  if (PartnerExchange* exchange = exchange_of(island.id)) {
    break_exchange(*exchange, failed.why);
  } else {
    abandon(failed.why);
  }
  // All of them are alive, or would be suspects: the link between two of them is not.
  if (!missing.empty() && !was_star) {
    mesh_is_broken_ = true;
    return;
  }
  if (missing.empty()) return exclude(island);
  for (const IslandId other : missing) exclude(members_[other]);
}

bool Coordinator::takes_part(IslandId island) const {
  const auto& all = reducing_->participants;
  const auto place =
      std::lower_bound(all.begin(), all.end(), island,
                       [](const Participant& x, IslandId id) { return x.island < id; });
  return place != all.end() && place->island == island;
}

Stamp Coordinator::stamp() {
  return {.fence = fence_,
          .view = view_,
          .outer_step = state_.outer_step(),
          .attempt = attempt_,
          .sender = kNobody,
          .sequence = ++sequence_};
}

void Coordinator::send(const Island& island, ToIsland body) {
  if (island.connection == kNoConnection) return;
  actions_.push_back(SendToIslands{{island.connection}, {stamp(), std::move(body)}});
}

void Coordinator::broadcast(ToIsland body) {
  std::vector<ConnectionId> to = members_.listeners();
  if (to.empty()) return;
  actions_.push_back(SendToIslands{std::move(to), {stamp(), std::move(body)}});
}

void Coordinator::append(LogBody body) {
  state_.apply(body);
  actions_.push_back(AppendToLog{std::move(body)});
}

void Coordinator::notice(std::string text, bool is_warning) {
  actions_.push_back(Notice{std::move(text), is_warning});
}

}  // namespace atl::island
