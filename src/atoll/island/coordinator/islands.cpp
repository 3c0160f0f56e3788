// Who takes part in a run: the membership half of Coordinator.

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/island/coordinator/coordinator.h"
#include "atoll/island/protocol/identity.h"
#include "atoll/island/protocol/messages.h"
#include "atoll/island/protocol/range_set.h"

namespace atl::island {

namespace {

// Others that are named to an island that fetches; more would not make it faster.
constexpr std::size_t kMaxSources = 4;
// After the beginning of an outer step, until islands that come are too late for it.
constexpr Seconds kInTime = 2;

template <typename T>
std::string differs(const char* field, const T& theirs, const T& ours) {
  if (theirs == ours) return "";
  return fmt::format("{} is {} there and {} in the run; ", field, theirs, ours);
}

// Of a few fragments; what differs in the others differs in the sum.
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

View::Member entry_of(const Island& island) {
  return {.island = island.id,
          .name = island.name,
          .address = island.address,
          .state = name_of(island.state()),
          .mesh_pass = island.mesh_pass};
}

}  // namespace

std::string Coordinator::objection(const Join& join) const {
  const RunIdentity& a = join.identity;
  const RunIdentity& b = options_.identity;
  if (a.version != b.version) {  // what else differs may only be said otherwise
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
      if (!old.pulse->is_silent(now_)) {
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
  island.mesh_pass = join.mesh_pass;
  island.was_told_of_end = false;
  island.pulse.emplace(options_.suspicion, now_, island.held_back);
  welcome(island, join);
}

void Coordinator::welcome(Island& island, const Join& join) {
  members_.set_state(island, MemberState::kJoining);
  members_.set_phase(island, Phase::kIdle);
  island.ready.reset();
  island.prepared.reset();
  const bool fits = state_.fits(join.outer_step, join.hashes);
  const std::int64_t behind = state_.outer_step() - join.outer_step;
  const bool is_current = fits && behind == 0;
  const bool is_clean = state_.book().holds(island.id, join.holds);
  const std::vector<BatchRange> kept = both(join.holds, state_.book().held_by(island.id));
  keep_only(island, kept);
  // Also from who made the newest outer step and has not heard its Commit: what was never exchanged
  // is the same there, and with all hashes it knows its own result. Its leases say that it is the
  // one that was there; anybody else who is behind may have begun with something else.
  const bool made_it = fits && behind == 1 && state_.contributed(island.id) && !kept.empty();
  if (is_current || made_it) state_.learn(join.hashes);
  Welcome welcome = {.island = island.id,
                     .outer_step = state_.outer_step(),
                     .hashes = state_.hashes(state_.outer_step()),
                     .must_sync = !is_current || !is_clean,
                     .sources = {},
                     .holds = kept,
                     .contributed = state_.contributed(island.id)};
  notice(fmt::format("{} joined as island {}, with the state of outer step {} of {}", island.name,
                     island.id, join.outer_step, state_.outer_step()),
         false);
  if (!welcome.must_sync) {
    send(island, std::move(welcome));
    return activate(island);
  }
  members_.set_state(island, MemberState::kSyncing);
  // One that is a single outer step behind has the result lying there; to fetch one takes longer.
  if (join.outer_step + 1 < state_.outer_step()) members_.set_suspect(island, false, false);
  island.claim(join.outer_step, join.hashes);
  welcome.sources = sources(island.id);
  // Its own state is the run's where only its batches are not.
  island.has_source = !welcome.sources.empty() || is_current;
  if (!is_current) ask_for_state(island, welcome.sources);
  send_names(island, welcome.sources);
  send(island, std::move(welcome));
  island.sync_request = sequence_;
}

void Coordinator::activate(Island& island) {
  island.is_behind = false;
  members_.set_state(island, MemberState::kActive);
  members_.set_suspect(island, false, false);
  view_changed_ = true;
  lost_from_.reset();
  tell_sources();
  if (is_finished()) return part();
  const bool trains = !state_.book().held_by(island.id).empty();
  members_.set_phase(island, trains ? Phase::kTraining : Phase::kIdle);
  if (!has_begun_) return;
  if (reducing_) {
    send_names(island, reducing_->participants);
    send(island, Reduce{.fragment = state_.fragment_of(state_.outer_step()),
                        .participants = reducing_->participants,
                        .is_star = reducing_->is_star});
  }
  // Who comes when the others have long begun is not to keep them waiting.
  const bool is_in_time = now_ - step_began_ < kInTime;
  if (!trains) grant({island.id}, is_in_time ? Phase::kTraining : Phase::kEarly);
}

// Islands that wait for somebody to fetch from.
void Coordinator::tell_sources() {
  if (members_.count(MemberState::kSyncing) == 0) return;
  for (Island& island : members_.all()) {
    if (island.state() == MemberState::kSyncing && !island.has_source) {
      resync(island, "there is an island to fetch from now", false);
    }
  }
}

// One that only calls out is none where others can be reached.
std::vector<Source> Coordinator::sources(IslandId except) {
  std::vector<Source> some;
  std::optional<Source> unreachable;
  const std::size_t count = members_.size();
  for (std::size_t i = 0; i < count && some.size() < kMaxSources; ++i) {
    const Island& island = members_.all()[(next_source_ + i) % count];
    if (island.state() != MemberState::kActive || island.id == except) continue;
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

// What nobody can fetch from it, it puts to where they fetch instead. Before they hear of it.
void Coordinator::ask_for_state(Island& island, const std::vector<Source>& sources) {
  island.putter = kNobody;
  const std::vector<StateHash> hashes = state_.hashes(state_.outer_step());
  if (sources.empty() || !sources.front().address.empty() || hashes.empty()) return;
  island.putter = sources.front().island;
  send(members_[island.putter], PutState{.hashes = hashes});
}

// Another one puts the rest. Where there is none, all of it may have come, and what has not comes
// from whoever is active next.
void Coordinator::lose_putter(IslandId putter) {
  if (members_.count(MemberState::kSyncing) == 0) return;
  for (Island& island : members_.all()) {
    if (island.state() != MemberState::kSyncing || island.putter != putter) continue;
    island.putter = kNobody;
    island.has_source = false;
    if (members_.count(MemberState::kActive) == 0) continue;
    resync(island, fmt::format("{}, which put the state, is gone", members_[putter].name), false);
  }
}

void Coordinator::resync(Island& island, const std::string& why, bool drops_work) {
  leave_attempt(island, fmt::format("{} fetches the state anew", island.name));
  island.prepared.reset();
  island.was_told_of_end = false;  // it is told again, once it has the state or nobody has
  members_.set_state(island, MemberState::kSyncing);
  lose_putter(island.id);
  members_.set_phase(island, Phase::kIdle);
  island.ready.reset();
  view_changed_ = true;
  std::vector<Source> some = sources(island.id);
  island.has_source = !some.empty();
  ask_for_state(island, some);
  send_names(island, some);
  send(island, Resync{.outer_step = state_.outer_step(),
                      .hashes = state_.hashes(state_.outer_step()),
                      .sources = std::move(some),
                      .drops_work = drops_work,
                      .why = why});
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
  members_.set_state(island, MemberState::kSuspect);
  lose_putter(island.id);
  members_.set_suspect(island, true, false);
  island.suspect_since = now_;
  view_changed_ = true;
}

void Coordinator::lose_connection(Island& island, const std::string& why) {
  if (island.was_told_of_end) {
    members_.connect(island, kNoConnection);
    return turn_out(island, why);
  }
  const bool was_in = island.state() == MemberState::kActive;
  if (was_in) suspect(island, why);
  if (was_in && !is_finished()) notice(fmt::format("{} is suspected: {}", island.name, why));
  members_.connect(island, kNoConnection);
  members_.set_phase(island, Phase::kIdle);
  island.ready.reset();
  if (island.state() == MemberState::kJoining || island.state() == MemberState::kSyncing) {
    members_.set_state(island, MemberState::kSuspect);
    lose_putter(island.id);
    members_.set_suspect(island, false, false);
    island.suspect_since = now_;
  }
}

// Its leases are the others' from now on.
void Coordinator::turn_out(Island& island, const std::string& why) {
  leave_attempt(island, fmt::format("{}: {}", island.name, why));
  if (island.connection != kNoConnection) {
    actions_.push_back(CloseConnection{island.connection, why});
    members_.connect(island, kNoConnection);
  }
  members_.set_state(island, MemberState::kOut);
  lose_putter(island.id);
  members_.set_suspect(island, false, false);
  members_.set_phase(island, Phase::kIdle);
  island.ready.reset();
  view_changed_ = true;
  keep_only(island, {});
  if (state_.is_here(island.id)) append(LogReturn{.island = island.id, .ranges = {}});
}

void Coordinator::watch(Island& island) {
  const MemberState state = island.state();
  if (state == MemberState::kOut) return;
  const bool is_silent = island.pulse && island.pulse->is_silent(now_);
  if (state == MemberState::kActive) {
    if (is_silent) {
      const std::string why = fmt::format("silent for {:.1f} s", now_ - island.pulse->last_heard());
      suspect(island, why);
      if (!is_finished()) notice(fmt::format("{} is suspected: {}", island.name, why));
    }
    return;
  }
  const Seconds for_how_long = now_ - island.suspect_since;
  if (for_how_long > options_.quorum_after) members_.set_suspect(island, false, false);
  if (state != MemberState::kSuspect) {
    if (is_silent && now_ - island.pulse->last_heard() > options_.out_after) {
      turn_out(island, "it was silent for too long");
    }
    return;
  }
  // Where others have nothing left to train on, they need not wait for what it holds.
  const bool is_needed = members_.count(Phase::kIdle) > 0 && state_.book().num_free() == 0 &&
                         !reducing_ && members_.count(Phase::kReady) == 0;
  if (for_how_long <= (is_needed ? options_.quorum_after : options_.out_after)) return;
  if (!is_finished()) notice(fmt::format("{} is out", island.name));
  turn_out(island, "it did not come back");
}

// Nobody who is here has the newest state: after a wait the newest that somebody has is the run's.
// Not at the end: what is committed then was told to be the model, and who has it may still come.
void Coordinator::find_newest_state() {
  const bool has_somebody = members_.count(MemberState::kActive) > 0 ||
                            (is_finished() && (has_holder() || is_somebody_away()));
  if (has_somebody || members_.count(MemberState::kSyncing) == 0) {
    lost_from_.reset();
    return;
  }
  if (!lost_from_) lost_from_ = now_;
  if (now_ - *lost_from_ < (is_finished() ? kInTime : options_.void_after)) return;
  lost_from_.reset();
  if (is_finished()) {
    for (Island& island : members_.all()) {
      if (island.state() != MemberState::kSyncing || island.was_told_of_end) continue;
      send(island, Finish{.why = "all batches are committed, and nobody is left to fetch the final "
                                 "state from",
                          .is_done = true});
      island.was_told_of_end = true;
    }
    return;
  }
  // Islands began unlike each other, and the one that the others were to follow is gone.
  if (state_.outer_step() == 0) state_.forget();
  const Island* best = nullptr;
  for (const Island& island : members_.all()) {
    if (island.state() != MemberState::kSyncing || island.claimed_step < 0) continue;
    // Of a branch that is void; or who knows what it has by now.
    if (island.claimed_step > state_.outer_step() || island.pulse->is_silent(now_)) continue;
    const bool fits = island.claimed.empty() || state_.fits(island.claimed_step, island.claimed);
    if (fits && (best == nullptr || island.claimed_step > best->claimed_step)) best = &island;
  }
  if (best == nullptr) {
    notice("nobody has a state of this run; waiting for an island that does");
    return;
  }
  if (best->claimed_step < state_.outer_step()) {
    const std::string why = fmt::format("the newest state left is that of outer step {}, on {}",
                                        best->claimed_step, best->name);
    append(LogVoid{.first_outer_step = best->claimed_step, .why = why});
    notice(why);
    attempt_ = 0;
    // What those that are silent have, is of the outer steps that are lost: they must join anew.
    for (Island& island : members_.all()) {
      if (island.state() == MemberState::kSuspect) turn_out(island, why);
    }
  }
  ++view_;
  if (!best->claimed.empty()) state_.learn(best->claimed);
  const Source source = {.island = best->id, .address = best->address};
  const bool is_known = !state_.hashes(state_.outer_step()).empty();
  for (Island& island : members_.all()) {
    if (island.state() != MemberState::kSyncing) continue;
    // What nobody knows the hash of cannot be fetched before the one that has it has said it.
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
                        .why = "it is the newest state left"});
    island.sync_request = sequence_;
  }
}

void Coordinator::announce_view() {
  view_changed_ = false;
  mesh_is_broken_ = false;
  ++view_;
  View view;
  for (const Island& island : members_.all()) {
    if (island.state() != MemberState::kOut) view.members.push_back(entry_of(island));
  }
  broadcast(std::move(view));
}

// The next view may be long in coming. TLS wants to know what they are called, and they want to be
// shown what they have told.
template <typename Others>
void Coordinator::send_names(const Island& island, const Others& others) {
  if (others.empty()) return;
  View view;
  for (const auto& other : others) view.members.push_back(entry_of(members_[other.island]));
  send(island, std::move(view));
}

}  // namespace atl::island
