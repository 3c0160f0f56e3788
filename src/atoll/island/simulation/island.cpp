#include "atoll/island/simulation/island.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/island/policy/policy.h"

namespace atl::island {

namespace {

// Connections to a participant that does not answer are given up after so long.
constexpr Seconds kUnreachableAfter = 1;
constexpr std::int64_t kTokensOfBatch = 1024;

OuterTiming timing_of(const SimulationOptions& options) {
  return {options.plan.num_fragments, options.plan.inner_steps, options.overlap,
          options.plan.is_gossip};
}

}  // namespace

SimulatedIsland::SimulatedIsland(SimulatedWorld& world, int index, double speed)
    : world_(world),
      index_(index),
      name_(fmt::format("island-{}", index + 1)),
      speed_(speed),
      tracker_(timing_of(world.options())) {
  for (int f = 0; f < world.options().plan.num_fragments; ++f) {
    saved_.anchors.push_back({0, simulated_first_state(f)});
  }
}

// ---- start, crash and stop ----

void SimulatedIsland::start() {
  if (has_ended_ || member_) return;
  ++life_;
  anchors_ = saved_.anchors;
  tracker_ = RoundTracker(timing_of(world_.options()));
  tracker_.begin(anchored_step(), saved_.work);
  schedules_ = {};
  is_stepping_ = false;
  num_drops_ = num_adopted_ = 0;
  has_heard_end_ = false;
  deltas_.clear();
  next_trainer_event_ = world_.now();
  MemberStart start = {.outer_step = anchored_step(), .holds = saved_.work.holds()};
  start.in_round = !start.holds.empty();
  for (const Anchor& anchor : anchors_) start.hashes.push_back(anchor.hash);
  MemberOptions options;
  options.name = name_;
  options.identity.run = "simulated";
  options.plan = world_.options().plan;
  options.address = fmt::format("i{}:1", index_ + 1);
  options.heartbeat_every = world_.options().heartbeat_every;
  options.can_rebase = world_.options().can_rebase;
  options.give_up_after = 1e9;
  options.remembers_view = false;
  member_.emplace(options, start);
  go_on();
  world_.connect(index_, life_, 0);
  post(world_.options().heartbeat_every * world_.uniform(), [this] { tick(); });
}

void SimulatedIsland::crash() {
  member_.reset();
  ++life_;
  deferred_.clear();
  num_stops_ = 0;
  if (std::exchange(returns_after_, std::nullopt)) is_leaving_ = false;
  // What it is started for again it has: the coordinator may be gone.
  has_ended_ |= has_saved_last_;
}

void SimulatedIsland::stop(bool stopped) {
  num_stops_ = std::max(0, num_stops_ + (stopped ? 1 : -1));
  while (num_stops_ == 0 && !deferred_.empty()) {
    const std::function<void()> what = std::move(deferred_.front());
    deferred_.pop_front();
    what();
  }
}

void SimulatedIsland::leave(std::optional<Seconds> returns_after) {
  if (!is_up() || has_ended_ || has_heard_end_) return;
  is_leaving_ = true;
  returns_after_ = returns_after;
  receive({0, LeaveWanted{"it was asked to"}});
}

void SimulatedIsland::post(Seconds after, std::function<void()> what) {
  world_.schedule(after, [this, life = life_, what = std::move(what)] {
    if (life != life_ || !is_up()) return;
    if (is_stopped()) {
      deferred_.push_back(what);
    } else {
      what();
    }
  });
}

// The trainer hears what the member decides between two inner steps, in order.
void SimulatedIsland::later(std::function<void()> what) {
  const Seconds step = world_.options().step_seconds / speed_;
  const Seconds when = std::max(next_trainer_event_, world_.now() + step * world_.uniform());
  next_trainer_event_ = when;
  post(when - world_.now(), std::move(what));
}

void SimulatedIsland::tick() {
  MemberTicked ticked;
  for (const IslandId other : fetches_from_) {
    const bool comes = world_.now() < fetches_until_ && world_.reaches(index_, other, false);
    if (comes) ticked.heard.push_back(other);
  }
  handle({0, ticked});
  post(world_.options().heartbeat_every, [this] { tick(); });
}

void SimulatedIsland::receive(const MemberEvent& event) {
  if (!is_up()) return;
  if (is_stopped()) {
    deferred_.push_back([this, event] { handle(event); });
  } else {
    handle(event);
  }
}

void SimulatedIsland::handle(const MemberEvent& event) {
  if (!is_up()) return;
  MemberEvent now = event;
  now.now = world_.now();
  const std::vector<MemberAction> actions = member_->handle(now);
  if (member_->id() != kNobody) id_ = member_->id();
  for (const MemberAction& action : actions) {
    std::visit([this](const auto& what) { perform(what); }, action);
  }
}

// ---- what the member wants ----

void SimulatedIsland::perform(const SendToCoordinator& action) {
  world_.send(index_, action.message);
}

void SimulatedIsland::perform(const Connect& action) {
  world_.disconnect(index_, false);
  world_.connect(index_, life_, action.after);
}

void SimulatedIsland::perform(const StartReduce& action) {
  const SimulationOptions& options = world_.options();
  const double bytes =
      options.parameters / options.plan.num_fragments * options.bytes_per_parameter;
  const auto count = static_cast<double>(action.reduce.participants.size());
  const std::string& codec = action.reduce.schedule.codec;
  if (action.reduce.participants.empty()) {  // with gossip: its state stays as it is
    return handle({0, ReduceDone{action.stamp, member_->hashes().front()}});
  }
  const double moved = codec.empty() || action.reduce.is_star
                           ? bytes * (action.reduce.is_star ? count : 2 * (count - 1) / count)
                           : exchange_bytes(codec, options.parameters / options.plan.num_fragments,
                                            static_cast<int>(action.reduce.participants.size()));
  world_.count_bytes(moved);
  const auto shared = world_.share(action.stamp, action.reduce);
  std::vector<int> islands = {index_};
  for (const Participant& participant : action.reduce.participants) {
    const SimulatedIsland* other = world_.island_of(participant.island);
    if (other != nullptr && options.link_at) islands.push_back(other->index());
  }
  const Seconds takes = world_.transfer(moved, islands);
  measured_.exchange_seconds = takes;
  measured_.mean_norm = 1 / std::sqrt(count);
  measured_.links.clear();
  const Seconds latency =
      options.link_at ? options.link_at(world_.now(), index_).latency : options.link.latency;
  for (const Participant& other : action.reduce.participants) {
    if (member_->id() == other.island) continue;
    measured_.links.push_back({.island = other.island,
                               .bytes_per_second = moved / takes,
                               .round_trip_seconds = 2 * latency});
  }
  world_.occupy(index_, takes);
  fetches_from_.clear();
  fetches_until_ = world_.now() + takes;
  for (const Participant& other : action.reduce.participants) {
    if (!action.reduce.is_star) fetches_from_.push_back(other.island);
  }
  post(takes, [this, stamp = action.stamp, shared] { end_reduce(stamp, *shared); });
}

void SimulatedIsland::perform(const StopReduce&) {}

void SimulatedIsland::end_reduce(const Stamp& stamp, const Reduce& reduce) {
  ReduceBroke broke = {.stamp = stamp, .unreachable = {}, .why = "islands cannot be reached"};
  std::vector<StateHash> deltas;
  for (const Participant& participant : reduce.participants) {
    const SimulatedIsland* other = world_.island_of(participant.island);
    const auto delta = other == nullptr ? std::nullopt : other->delta(stamp.outer_step);
    const bool is_there =
        delta && (other == this || world_.reaches(index_, participant.island, reduce.is_star));
    if (is_there) {
      deltas.push_back(*delta);
    } else {
      broke.unreachable.push_back(participant.island);
    }
  }
  if (!broke.unreachable.empty()) {
    return post(kUnreachableAfter, [this, broke] { handle({0, broke}); });
  }
  if (member_->outer_step() != stamp.outer_step) return;  // it was stopped meanwhile
  const StateHash base = member_->hashes()[static_cast<std::size_t>(reduce.fragment)];
  // With gossip the states are in what was handed in.
  StateHash hash = simulated_outer_step(world_.options().plan.is_gossip ? StateHash{} : base,
                                        reduce.participants, deltas);
  if (num_flips_ > 0) {
    --num_flips_;
    world_.audit().expect_wrong_results();
    hash.low ^= static_cast<std::uint64_t>(1 + world_.uniform() * 1e6);
  }
  handle({0, ReduceDone{stamp, hash}});
}

std::optional<StateHash> SimulatedIsland::delta(std::int64_t outer_step) const {
  const auto found = deltas_.find(outer_step);
  if (!is_up() || found == deltas_.end()) return std::nullopt;
  return simulated_delta(member_->id(), found->second.base, found->second.consumed);
}

void SimulatedIsland::perform(const Swap& action) {
  world_.audit().swapped(member_->id(), action.outer_step, action.hash, action.was_mine,
                         world_.now());
  later([this, action] { hear_commit(action); });
}

void SimulatedIsland::perform(const FetchState& action) {
  const double bytes = world_.options().parameters * 8;  // anchor and momentum, f32
  const std::uint64_t number = ++num_fetches_;
  const Seconds begins_in = std::max(0.0, stops_until_ - world_.now());
  if (action.hashes == member_->hashes()) {  // only the outer step is another
    return post(begins_in, [this, action, number] {
      if (number > num_stopped_) handle({0, StateFetched{action.outer_step, action.hashes}});
    });
  }
  const Seconds takes = world_.transfer(bytes, {index_});
  world_.occupy(index_, takes);
  fetches_from_.clear();
  fetches_until_ = world_.now() + takes;
  for (const Source& source : action.sources) {
    fetches_from_.push_back(source.island);
    if (const SimulatedIsland* other = world_.island_of(source.island)) {
      world_.occupy(other->index(), takes);
    }
  }
  post(begins_in + takes, [this, action, number] { end_fetch(action, number); });
}

// It takes a moment, in which the fetch may end.
void SimulatedIsland::perform(const StopFetch&) {
  const Seconds takes = 0.05 * world_.uniform();
  stops_until_ = std::max(stops_until_, world_.now() + takes);
  post(stops_until_ - world_.now(), [this, number = num_fetches_] {
    num_stopped_ = std::max(num_stopped_, number);
    handle({0, FetchStopped{}});
  });
}

void SimulatedIsland::end_fetch(const FetchState& action, std::uint64_t number) {
  if (number <= num_stopped_) return;
  for (const Source& source : action.sources) {
    const SimulatedIsland* other = world_.island_of(source.island);
    if (other == nullptr || !world_.reaches(index_, source.island, false)) continue;
    const Member& member = other->member();
    const bool is_at_it =
        world_.options().plan.is_gossip || member.outer_step() == action.outer_step;
    if (!is_at_it || member.hashes() != action.hashes) continue;
    world_.count_bytes(world_.options().parameters * 8);
    return handle({0, StateFetched{action.outer_step, action.hashes}});
  }
  handle({0, FetchFailed{"nobody has it"}});
}

void SimulatedIsland::perform(const Adopt& action) {
  if (action.drops_work) ++num_drops_;
  later([this, drops_work = action.drops_work,
         now = Change{member_->outer_step(), member_->hashes()}] {
    change_ = now;
    tracker_.replaced(now.outer_step, drops_work);
    if (drops_work) ++num_adopted_;
    go_on();
  });
}

void SimulatedIsland::perform(const StartRound& action) {
  later([this, action] {
    tracker_.granted(action.lease, action.drops_hand_in);
    go_on();
  });
}

void SimulatedIsland::perform(const UseSchedule& action) {
  schedules_.use(action.outer_step, action.schedule);
  later([this, overlap = action.schedule.overlap] { tracker_.overlaps(overlap); });
}

void SimulatedIsland::perform(const Halt& action) {
  if (returns_after_) {
    world_.disconnect(index_, false);
    world_.schedule(*returns_after_, [this] { start(); });
    // What is under way here still needs the member.
    return world_.schedule(0, [this, life = life_] {
      if (life == life_) crash();
    });
  }
  was_turned_out_ = !action.is_done;
  const bool may_lack_it =
      !world_.options().coordinator_ends && action.why.find("nobody") != std::string::npos;
  const bool has_final_state =
      action.is_done && !is_leaving_ && world_.is_finished() && !may_lack_it;
  if (has_final_state) {
    world_.audit().ended(member_->id(), member_->outer_step(), member_->hashes(), world_.now());
  }
  if (action.is_done) world_.note_end();
  if (member_->has_halted()) return;  // Part comes next
  has_heard_end_ = true;
  post(world_.options().save_seconds * world_.uniform(), [this] {
    // What the trainer has not heard yet changes nothing any more.
    saved_ = {};
    for (const StateHash& hash : member_->hashes()) {
      saved_.anchors.push_back({member_->outer_step(), hash});
    }
    has_saved_last_ = true;
    receive({0, LeaveWanted{"it has saved the final model"}});
  });
}

void SimulatedIsland::perform(const Part&) {
  if (returns_after_) return;  // it is started again
  has_ended_ = true;
  world_.disconnect(index_, false);
}

// ---- the trainer ----

// Does all that is due now, as train::IslandRounds does. Events that come during inner steps are
// acted on at once: at most one step too early.
void SimulatedIsland::go_on() {
  using Do = RoundTracker::Do;
  for (;;) {
    const RoundTracker::Decision due = tracker_.next();
    switch (due.what) {
      case Do::kWait:
        return save();
      case Do::kTrain:
        save();
        return train();
      case Do::kBeginRound:
        tracker_.begun();
        break;
      case Do::kHandIn:
        hand_in(due);
        break;
      case Do::kApply:
        move(due.fragment, committed_.outer_step, committed_.hashes.front());
        tracker_.applied();
        break;
      case Do::kTakeBack:
        tracker_.taken_back();
        break;
      case Do::kRebase:
        move(due.fragment, change_.outer_step, change_.hashes.front());
        tracker_.rebased();
        break;
      case Do::kAdopt:
        adopt(due.drops_work);
        tracker_.adopted();
    }
  }
}

// Takes as many steps at once as no event can interrupt.
void SimulatedIsland::train() {
  if (is_stepping_) return;
  is_stepping_ = true;
  const std::int64_t count = tracker_.steps_ahead();
  const SimulationOptions& options = world_.options();
  const Seconds step =
      options.step_seconds / speed_ * (1 + options.jitter * (2 * world_.uniform() - 1));
  const Seconds duration = step * static_cast<double>(count);
  post(duration, [this, step, duration, count, stretch = ++stretch_] {
    if (stretch != stretch_) return;
    trained_seconds_ += duration;
    is_stepping_ = false;
    tracker_.trained(count, count * kTokensOfBatch, static_cast<double>(count * kTokensOfBatch));
    handle({0, Progress{.inner_steps = 0, .batches_per_second = 1 / step}});
    go_on();
  });
}

void SimulatedIsland::hand_in(const RoundTracker::Decision& due) {
  const RoundTracker::Work work = tracker_.work();
  const StateHash base = anchors_[static_cast<std::size_t>(due.fragment)].hash;
  expect_held(work.trained);
  const double norm = std::exchange(next_norm_, 1);
  const RoundSchedule* schedule = schedules_.of(due.outer_step);
  const Ready ready = {
      .base_hash = base,
      .tokens = work.tokens,
      .consumed = work.trained,
      .norm = norm,
      .is_finite = norm >= 0,
      .loss = world_.loss(),
      .codec = schedule == nullptr ? world_.options().plan.policy.base.codec : schedule->codec,
      .measured = measure()};
  deltas_[due.outer_step] = {base, work.trained};
  deltas_.erase(deltas_.begin(), deltas_.lower_bound(due.outer_step - 1));
  tracker_.handed_in();
  world_.audit().offered(id_, due.outer_step, base);
  handle({0, RoundDone{num_adopted_, due.outer_step, ready}});
}

Measurements SimulatedIsland::measure() const {
  const SimulationOptions& options = world_.options();
  Measurements measured = measured_;
  measured.step_seconds = options.step_seconds / speed_;
  measured.learning_rate = world_.learning_rate();
  measured.codec_bytes_per_second = 2e9;
  if (options.liar != index_) return measured;
  const double lie = options.lie;
  measured = {.step_seconds = lie,
              .learning_rate = lie,
              .exchange_seconds = lie,
              .codec_bytes_per_second = lie,
              .mean_norm = lie,
              .links = {{.island = 1, .bytes_per_second = lie, .round_trip_seconds = lie}}};
  return measured;
}

// A coordinator refuses batches that are committed or leased to another island, so the run would go
// on. But an island that was told so must not hand them in.
void SimulatedIsland::expect_held(const std::vector<BatchRange>& consumed) {
  const std::optional<RangeSet> work = RangeSet::of(consumed);
  const std::optional<RangeSet> held = RangeSet::of(member_->holds());
  if (num_drops_ != num_adopted_ || (work && held && held->contains(*work))) return;
  world_.audit().violation(fmt::format("{} hands in batches that it does not hold", name_),
                           world_.now());
}

void SimulatedIsland::hear_commit(const Swap& swap) {
  (swap.was_mine ? committed_ : change_) = {swap.outer_step + 1, {swap.hash}};
  tracker_.committed(swap.outer_step, swap.fragment, swap.was_mine);
  go_on();
}

void SimulatedIsland::move(int fragment, std::int64_t outer_step, const StateHash& hash) {
  anchors_[static_cast<std::size_t>(fragment)] = {outer_step, hash};
}

void SimulatedIsland::adopt(bool drops_work) {
  for (std::size_t f = 0; f < anchors_.size(); ++f) anchors_[f].hash = change_.hashes[f];
  for (Anchor& anchor : anchors_) anchor.outer_step = change_.outer_step;
  if (!drops_work) return;
  ++stretch_;
  is_stepping_ = false;
}

std::int64_t SimulatedIsland::anchored_step() const {
  std::int64_t newest = 0;
  for (const Anchor& anchor : anchors_) newest = std::max(newest, anchor.outer_step);
  return newest;
}

void SimulatedIsland::save() {
  if (has_saved_last_) return;
  const int every = std::max(1, world_.options().checkpoint_every);
  if (anchored_step() % every == 0) saved_ = {anchors_, tracker_.work()};
}

}  // namespace atl::island
