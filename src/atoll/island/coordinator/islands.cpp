// Who takes part in a run: the membership half of Coordinator.

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/island/coordinator/coordinator.h"
#include "atoll/island/protocol/identity.h"
#include "atoll/island/protocol/messages.h"
#include "atoll/island/protocol/range_set.h"

namespace atl::island {

namespace {

// Sources that an island is told to fetch from; more would not make it faster.
constexpr std::size_t kMaxSources = 4;
// Islands that become active later than so long after an outer step began do not take part in it.
constexpr Seconds kInTime = 2;

template <typename T>
std::string differs(const char* field, const T& theirs, const T& ours) {
  if (theirs == ours) return "";
  return fmt::format("{} is {} there and {} in the run; ", field, theirs, ours);
}

// Names the state sizes of the first fragments, and the sum of all.
std::string sizes_text(const std::vector<std::uint64_t>& sizes) {
  std::uint64_t sum = 0;
  for (const std::uint64_t size : sizes) sum += size;
  const std::size_t shown = std::min<std::size_t>(sizes.size(), 4);
  return fmt::format(
      "{} bytes ({}{})", sum,
      fmt::join(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
      shown < sizes.size() ? ", ..." : "");
}

std::vector<BatchRange> both(std::span<const BatchRange> a, std::span<const BatchRange> b) {
  std::vector<BatchRange> shared;
  for (const BatchRange& x : a) {
    for (const BatchRange& y : b) {
      const BatchRange part = {std::max(x.begin, y.begin), std::min(x.end, y.end)};
      if (part.size() > 0) shared.push_back(part);
    }
  }
  return shared;
}

View::MemberInfo entry_of(const Island& island) {
  return {.island = island.id,
          .name = island.name,
          .address = island.address,
          .state = name_of(island.state()),
          .peer_token = island.peer_token};
}

}  // namespace

std::string Coordinator::objection(const Join& join) const {
  const RunIdentity& a = join.identity;
  const RunIdentity& b = options_.identity;
  if (a.version != b.version) {  // other differences may only be another way of writing
    return fmt::format("it speaks version {} of the protocol, and the run version {}", a.version,
                       b.version);
  }
  std::string text =
      differs("the run's name", a.run, b.run) + differs("the model", a.model, b.model) +
      differs("the tokenizer", a.tokenizer, b.tokenizer) + differs("the data", a.data, b.data);
  if (const std::string which = settings_difference(a.settings, b.settings); !which.empty()) {
    text += which + "; ";
  }
  const RunPlan& p = join.plan;
  const RunPlan& q = options_.plan;
  text += differs("the number of fragments", p.num_fragments, q.num_fragments) +
          differs("inner steps", p.inner_steps, q.inner_steps) +
          differs("the number of batches", p.total_batches, q.total_batches) +
          differs("the least number of islands", p.min_islands, q.min_islands) +
          differs("the quorum", p.quorum, q.quorum) +
          differs("the grace in seconds", p.grace_seconds, q.grace_seconds) +
          differs("private data", p.is_private, q.is_private) +
          differs("the state", sizes_text(p.state_sizes), sizes_text(q.state_sizes));
  if (!text.empty()) text.resize(text.size() - 2);
  return text;
}

void Coordinator::refuse(ConnectionId connection, const std::string& why, bool is_final) {
  actions_.push_back(
      SendToIslands{{connection}, {stamp(), Refused{.why = why, .is_final = is_final}}});
  actions_.push_back(CloseConnection{connection, why});
}

void Coordinator::join(ConnectionId connection, const Join& join) {
  if (join.name.empty()) return refuse(connection, "the island has no name", true);
  if (const std::string why = objection(join); !why.empty()) {
    return refuse(connection, fmt::format("{} is not of this run: {}", join.name, why), true);
  }
  if (!halted_.empty()) return refuse(connection, "the run is halted: " + halted_, true);
  const bool has_hashes = join.outer_step >= 0;
  const auto num_hashes = has_hashes ? static_cast<std::size_t>(state_.num_fragments()) : 0;
  if (join.outer_step < -1 || join.hashes.size() != num_hashes) {
    return refuse(connection,
                  fmt::format("{} hashes of a state at outer step {}: {} are wanted",
                              join.hashes.size(), join.outer_step, num_hashes),
                  true);
  }
  const auto known = state_.island_named(join.name);
  if (known) {
    Island& old = members_[*known];
    if (old.is_evicted) return refuse(connection, join.name + " was turned out of the run", true);
    if (old.connection != kNoConnection) {
      if (!old.detector->is_silent(now_)) {
        return refuse(connection,
                      fmt::format("an island named {} is in the run already; another name is "
                                  "given with --island.name",
                                  join.name),
                      false);
      }
      actions_.push_back(CloseConnection{old.connection, "the island came anew"});
      lose_connection(old, "it came anew");
    }
  }
  if (!known && members_.size() >= static_cast<std::size_t>(kMaxIslands)) {
    return refuse(connection, fmt::format("the run has had {} islands already", kMaxIslands), true);
  }
  const IslandId id = known.value_or(static_cast<IslandId>(members_.size() + 1));
  if (!known || members_[id].address != join.address || !state_.is_here(id)) {
    append(LogIsland{.island = id, .name = join.name, .address = join.address});
  }
  Island& island = members_.add(id, join.name, join.address);
  members_.connect(island, connection);
  island.peer_token = join.peer_token;
  island.was_told_of_end = island.has_saved = false;
  island.detector.emplace(options_.failure_detector, now_, island.held_back);
  welcome(island, join);
}

void Coordinator::welcome(Island& island, const Join& join) {
  members_.set_state(island, IslandState::kJoining);
  members_.set_phase(island, Phase::kIdle);
  island.ready.reset();
  island.prepared.reset();
  const bool is_gossip = options_.plan.is_gossip;
  island.own_state = {};
  if (is_gossip && join.outer_step >= 0 &&
      is_own_state(island.id, join.outer_step, join.hashes.front())) {
    island.own_state = join.hashes.front();
  }
  const bool fits =
      is_gossip ? island.own_state != StateHash{} : state_.fits(join.outer_step, join.hashes);
  const std::int64_t behind = state_.outer_step() - join.outer_step;
  const bool is_current = fits && behind == 0;
  const bool is_clean = state_.leases().holds(island.id, join.holds);
  const std::vector<BatchRange> kept = both(join.holds, state_.leases().held_by(island.id));
  keep_only(island, kept);
  // An island that made the newest outer step may not have heard its Commit. Fragments that were
  // never exchanged are the same there, so its hashes are believed. Its leases prove that it is the
  // island that was there, or the result beside its state that it made the step too; any other
  // island that is behind may have begun with another model.
  const bool has_leases = state_.contributed(island.id) && !kept.empty();
  const bool has_result = join.prepared != StateHash{} && join.prepared == state_.newest_hash();
  const bool made_it = !is_gossip && fits && behind == 1 && (has_leases || has_result);
  if (is_current || made_it) state_.learn(join.hashes);
  island.claim(join.outer_step, join.hashes);
  // Told by Welcome that it was committed, it makes the result its state; until it says so nothing
  // may become void that it has.
  if (made_it && has_result) island.claim(state_.outer_step(), state_.hashes(state_.outer_step()));
  Welcome welcome = {.island = island.id,
                     .outer_step = state_.outer_step(),
                     .hashes = is_gossip ? join.hashes : state_.hashes(state_.outer_step()),
                     .must_sync = !is_current || !is_clean,
                     .sources = {},
                     .holds = kept,
                     .contributed = state_.contributed(island.id),
                     .schedule = state_.policy().schedule()};
  notice(fmt::format("{} joined as island {}, with the state of outer step {} of {}", island.name,
                     island.id, join.outer_step, state_.outer_step()),
         false);
  if (!welcome.must_sync) {
    send(island, std::move(welcome));
    return activate(island);
  }
  members_.set_state(island, IslandState::kSyncing);
  // An island that is one outer step behind usually has the prepared result; fetching takes longer.
  if (join.outer_step + 1 < state_.outer_step()) members_.set_suspect(island, false, false);
  WantedState wanted = wanted_state(island, join.prepared);
  welcome.sources = std::move(wanted.sources);
  welcome.hashes = std::move(wanted.hashes);
  welcome.contributed = wanted.contributed;
  if (is_gossip && wanted.is_there) island.claim(state_.outer_step(), welcome.hashes);
  // Where only its batches are wrong, its own state is the run's.
  island.has_source = !welcome.sources.empty() || is_current || wanted.is_there;
  if (!is_current && !wanted.is_there) ask_for_state(island, welcome.sources);
  send_names(island, welcome.sources);
  send(island, std::move(welcome));
  island.sync_request = sequence_;
}

void Coordinator::activate(Island& island) {
  island.is_behind = false;
  members_.set_state(island, IslandState::kActive);
  members_.set_suspect(island, false, false);
  view_changed_ = true;
  lost_from_.reset();
  tell_sources();
  if (is_finished()) return part();
  const bool trains = !state_.leases().held_by(island.id).empty();
  members_.set_phase(island, trains ? Phase::kTraining : Phase::kIdle);
  if (!has_begun_) return;
  if (reducing_) {
    send_names(island, reducing_->participants);
    send(island, reduce_message(island));
  }
  // An island that comes long after the round began does not keep the others waiting.
  const bool is_in_time = now_ - step_began_ < kInTime;
  if (!trains) grant({island.id}, is_in_time ? Phase::kTraining : Phase::kEarly);
}

// Tells islands that wait for a source which ones there are now.
void Coordinator::tell_sources() {
  if (members_.count(IslandState::kSyncing) == 0) return;
  for (Island& island : members_.all()) {
    if (island.state() == IslandState::kSyncing && !island.has_source) {
      resync(island, "there is an island to fetch from now", false);
    }
  }
}

// An island without an address is a source only when no other can be reached.
// With gossip: of those that have this state.
std::vector<Source> Coordinator::sources(IslandId except, const StateHash& hash) {
  std::vector<Source> some;
  std::optional<Source> unreachable;
  const std::size_t count = members_.size();
  for (std::size_t i = 0; i < count && some.size() < kMaxSources; ++i) {
    const Island& island = members_.all()[(next_source_ + i) % count];
    if (island.state() != IslandState::kActive || island.id == except) continue;
    if (options_.plan.is_gossip && island.own_state != hash) continue;
    const Source source = {.island = island.id, .address = island.address};
    if (!island.address.empty()) {
      some.push_back(source);
    } else if (!unreachable) {
      unreachable = source;
    }
  }
  next_source_ = count == 0 ? 0 : (next_source_ + 1) % count;
  if (some.empty() && unreachable) some.push_back(*unreachable);
  return some;
}

// Tells a source without an address to put its state to the coordinator, before others hear of it.
void Coordinator::ask_for_state(Island& island, const std::vector<Source>& sources) {
  island.putter = kNobody;
  const std::vector<StateHash> hashes = options_.plan.is_gossip
                                            ? std::vector<StateHash>{island.wanted}
                                            : state_.hashes(state_.outer_step());
  if (sources.empty() || !sources.front().address.empty() || hashes.empty()) return;
  island.putter = sources.front().island;
  send(members_[island.putter], PutState{.hashes = hashes});
}

// Another island puts the rest of the state. Where there is none, all of it may have come already;
// if not, the next active island puts it.
void Coordinator::lose_putter(IslandId putter) {
  if (members_.count(IslandState::kSyncing) == 0) return;
  for (Island& island : members_.all()) {
    if (island.state() != IslandState::kSyncing || island.putter != putter) continue;
    island.putter = kNobody;
    island.has_source = false;
    if (members_.count(IslandState::kActive) == 0) continue;
    resync(island, fmt::format("{}, which put the state, is gone", members_[putter].name), false);
  }
}

void Coordinator::resync(Island& island, const std::string& why, bool drops_work) {
  leave_attempt(island, fmt::format("{} fetches the state anew", island.name));
  island.prepared.reset();
  island.was_told_of_end = false;  // Finish is sent again, once it has the state or nobody has it
  members_.set_state(island, IslandState::kSyncing);
  lose_putter(island.id);
  members_.set_phase(island, Phase::kIdle);
  island.ready.reset();
  view_changed_ = true;
  WantedState wanted = wanted_state(island);
  island.has_source = !wanted.sources.empty() || wanted.is_there;
  if (!wanted.is_there) ask_for_state(island, wanted.sources);
  send_names(island, wanted.sources);
  send(island, Resync{.outer_step = state_.outer_step(),
                      .hashes = std::move(wanted.hashes),
                      .sources = std::move(wanted.sources),
                      .drops_work = drops_work,
                      .why = why,
                      .schedule = state_.policy().schedule(),
                      .contributed = wanted.contributed});
  island.sync_request = sequence_;
}

void Coordinator::strike(Island& island, const std::string& why) {
  ++island.strikes;
  notice(fmt::format("{}: {} ({} of {})", island.name, why, island.strikes, options_.max_strikes));
  if (island.strikes < options_.max_strikes) return resync(island, why, true);
  island.is_evicted = true;
  send(island, Finish{.why = why, .is_done = false});
  turn_out(island, why);
}

void Coordinator::suspect(Island& island, const std::string& why) {
  leave_attempt(island, fmt::format("{}: {}", island.name, why));
  members_.set_state(island, IslandState::kSuspect);
  lose_putter(island.id);
  members_.set_suspect(island, true, false);
  island.suspect_since = now_;
  view_changed_ = true;
}

void Coordinator::tell_suspected(const Island& island, const std::string& why) {
  if (is_finished()) return;
  actions_.push_back(Notice{.text = fmt::format("{} is suspected: {}", island.name, why),
                            .is_warning = true,
                            .is_lost_island = true});
}

void Coordinator::lose_connection(Island& island, const std::string& why) {
  if (island.was_told_of_end) {
    members_.connect(island, kNoConnection);
    return lose_at_end(island, why);
  }
  const bool was_in = island.state() == IslandState::kActive;
  if (was_in) suspect(island, why);
  if (was_in) tell_suspected(island, why);
  members_.connect(island, kNoConnection);
  members_.set_phase(island, Phase::kIdle);
  island.ready.reset();
  if (island.state() == IslandState::kJoining || island.state() == IslandState::kSyncing) {
    members_.set_state(island, IslandState::kSuspect);
    lose_putter(island.id);
    members_.set_suspect(island, false, false);
    island.suspect_since = now_;
  }
}

// Its leases return, and other islands may get them.
void Coordinator::turn_out(Island& island, const std::string& why) {
  leave_attempt(island, fmt::format("{}: {}", island.name, why));
  if (island.connection != kNoConnection) {
    actions_.push_back(CloseConnection{island.connection, why});
    members_.connect(island, kNoConnection);
  }
  members_.set_state(island, IslandState::kOut);
  lose_putter(island.id);
  members_.set_suspect(island, false, false);
  members_.set_phase(island, Phase::kIdle);
  island.ready.reset();
  view_changed_ = true;
  keep_only(island, {});
  if (state_.is_here(island.id)) append(LogReturn{.island = island.id, .ranges = {}});
}

void Coordinator::watch(Island& island) {
  const IslandState state = island.state();
  if (state == IslandState::kOut) return;
  const bool is_silent = island.detector && island.detector->is_silent(now_);
  if (state == IslandState::kActive) {
    if (is_silent) {
      const std::string why =
          fmt::format("silent for {:.1f} s", now_ - island.detector->last_heard());
      suspect(island, why);
      tell_suspected(island, why);
    }
    return;
  }
  const Seconds for_how_long = now_ - island.suspect_since;
  if (for_how_long > options_.quorum_after) members_.set_suspect(island, false, false);
  if (state != IslandState::kSuspect) {
    if (is_silent && now_ - island.detector->last_heard() > options_.out_after) {
      give_up(island, "it was silent for too long");
    }
    return;
  }
  // When no free batches are left, other islands get what a silent island holds.
  const bool is_needed = members_.count(Phase::kIdle) > 0 && state_.leases().num_free() == 0 &&
                         !reducing_ && members_.count(Phase::kReady) == 0;
  if (for_how_long <= (is_needed ? options_.quorum_after : options_.out_after)) return;
  if (!is_finished()) notice(fmt::format("{} is out", island.name));
  give_up(island, "it did not come back");
}

// When no connected island has the newest state for void_after seconds, the newest state that one
// has becomes the run's. Not at the end of the run: the last commit is the final model, and an
// island that has it may still come.
void Coordinator::find_newest_state() {
  const bool has_somebody = members_.count(IslandState::kActive) > 0 ||
                            (is_finished() && (has_holder() || is_somebody_away()));
  if (has_somebody || members_.count(IslandState::kSyncing) == 0) {
    lost_from_.reset();
    return;
  }
  if (!lost_from_) lost_from_ = now_;
  if (now_ - *lost_from_ < (is_finished() ? kInTime : options_.void_after)) return;
  lost_from_.reset();
  if (is_finished()) {
    for (Island& island : members_.all()) {
      if (island.state() != IslandState::kSyncing || island.was_told_of_end) continue;
      send(island, Finish{.why = "all batches are committed, and nobody is left to fetch the final "
                                 "state from: the newest checkpoint of any other island has it",
                          .is_done = true});
      island.was_told_of_end = island.has_saved = true;  // it has nothing to wait for, or to give
    }
    return;
  }
  // Islands began with different models, and the island whose model counted is gone.
  if (state_.outer_step() == 0) state_.forget();
  const Island* best = nullptr;
  for (const Island& island : members_.all()) {
    if (island.state() != IslandState::kSyncing || island.claimed_step < 0) continue;
    // Its state belongs to a void outer step, or is not known.
    if (island.claimed_step > state_.outer_step() || island.detector->is_silent(now_)) continue;
    const bool fits =
        options_.plan.is_gossip
            ? !island.claimed.empty() &&
                  (state_.was_a_state(island.claimed_step, island.claimed.front()) ||
                   state_.may_be_first(island.claimed.front()))
            : island.claimed.empty() || state_.fits(island.claimed_step, island.claimed);
    if (fits && (best == nullptr || island.claimed_step > best->claimed_step)) best = &island;
  }
  if (best == nullptr) {
    notice("nobody has a state of this run; waiting for an island that does");
    return;
  }
  if (best->claimed_step < state_.outer_step()) {
    if (!still_has_state(members_[best->id])) {
      lost_from_ = now_ - options_.void_after;  // decided as soon as it has answered
      return;
    }
    const std::string why = fmt::format("the newest state left is that of outer step {}, on {}",
                                        best->claimed_step, best->name);
    append(LogVoid{.first_outer_step = best->claimed_step, .why = why});
    notice(why);
    attempt_ = 0;
    // Silent islands may have the lost outer steps: they must join again.
    for (Island& island : members_.all()) {
      if (island.state() == IslandState::kSuspect) turn_out(island, why);
    }
  }
  ++view_;
  if (!best->claimed.empty()) state_.learn(best->claimed);
  if (options_.plan.is_gossip && state_.may_be_first(best->claimed.front())) {
    state_.learn_first(best->claimed.front());
  }
  const Source source = {.island = best->id, .address = best->address};
  if (options_.plan.is_gossip) return offer_newest(*best);
  const bool is_known = !state_.hashes(state_.outer_step()).empty();
  for (Island& island : members_.all()) {
    if (island.state() != IslandState::kSyncing) continue;
    // A state whose hash is unknown cannot be fetched before its owner has told the hash.
    if (!is_known && island.id != best->id) {
      island.has_source = false;
      continue;
    }
    island.has_source = true;
    if (island.id != best->id) ask_for_state(island, {source});
    send_names(island, std::vector<Source>{source});
    send(island, Resync{.outer_step = state_.outer_step(),
                        .hashes = state_.hashes(state_.outer_step()),
                        .sources = {source},
                        .drops_work = true,
                        .why = "it is the newest state left",
                        .schedule = state_.policy().schedule(),
                        .contributed = state_.contributed(island.id)});
    island.sync_request = sequence_;
  }
}

// Whether the island has said, in answer to a question, that it has the state that it claims and is
// fetching no other, which would take its place. Asks it once. Before it has said so nothing may
// become void: nobody might have a state of the run then.
bool Coordinator::still_has_state(Island& island) {
  const bool is_asked = asked_ == island.id && asked_request_ == island.sync_request;
  if (is_asked) return has_confirmed_;
  const std::vector<StateHash> hashes =
      island.claimed.empty() ? state_.hashes(island.claimed_step) : island.claimed;
  island.prepared.reset();
  send(island, Resync{.outer_step = island.claimed_step,
                      .hashes = hashes,
                      .sources = {},
                      .drops_work = true,
                      .why = "its state is the newest that is left",
                      .schedule = state_.policy().schedule(),
                      .contributed = false});
  island.sync_request = sequence_;
  asked_ = island.id;
  asked_request_ = sequence_;
  has_confirmed_ = false;
  return false;
}

void Coordinator::announce_view() {
  view_changed_ = false;
  mesh_is_broken_ = false;
  ++view_;
  View view;
  for (const Island& island : members_.all()) {
    if (island.state() != IslandState::kOut) view.members.push_back(entry_of(island));
  }
  broadcast(std::move(view));
}

// Sends names and access tokens of the islands that this one needs now: TLS needs the names, and
// the next View may come late.
template <typename Others>
void Coordinator::send_names(const Island& island, const Others& others) {
  if (others.empty()) return;
  View view;
  for (const auto& other : others) view.members.push_back(entry_of(members_[other.island]));
  send(island, std::move(view));
}

}  // namespace atl::island
