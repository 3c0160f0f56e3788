#include "atoll/island/simulation/island.h"

#include <algorithm>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/island/simulation/simulator.h"

namespace atl::island {

namespace {

// Connections to a participant that does not answer are given up after so long.
constexpr Seconds kUnreachableAfter = 1;
constexpr std::int64_t kTokensOfBatch = 1024;

std::int64_t num_batches(const std::vector<BatchRange>& ranges) {
  std::int64_t sum = 0;
  for (const BatchRange& range : ranges) sum += range.size();
  return sum;
}

void append(std::vector<BatchRange>& to, const std::vector<BatchRange>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

}  // namespace

SimulatedIsland::SimulatedIsland(Simulator& world, int index, double speed)
    : world_(world), index_(index), name_(fmt::format("island-{}", index + 1)), speed_(speed) {
  saved_.outer_step = 0;
  for (int f = 0; f < world.options().plan.num_fragments; ++f) {
    saved_.hashes.push_back(simulated_first_state(f));
  }
}

// ---- its life ----

void SimulatedIsland::start() {
  if (has_ended_ || member_) return;
  ++life_;
  work_ = saved_;
  is_training_ = is_exchanging_ = false;
  num_adopted_ = 0;
  leases_.clear();
  deltas_.clear();
  next_trainer_event_ = world_.now();
  MemberStart start = {.outer_step = work_.outer_step,
                       .hashes = work_.hashes,
                       .holds = work_.trained,
                       .in_round = work_.in_round};
  append(start.holds, work_.left);
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
  if (work_.in_round) {
    leases_.push_back({.ranges = work_.left, .inner_steps = num_batches(work_.left)});
    work_.left.clear();
    train();
  }
  world_.connect(index_, life_, 0);
  post(world_.options().heartbeat_every * world_.uniform(), [this] { tick(); });
}

void SimulatedIsland::crash() {
  member_.reset();
  ++life_;
  deferred_.clear();
  num_stops_ = 0;
  if (std::exchange(returns_after_, std::nullopt)) is_leaving_ = false;
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
  if (!is_up() || has_ended_) return;
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
  for (const MemberAction& action : member_->handle(now)) {
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
  const double moved = bytes * (action.reduce.is_star ? count : 2 * (count - 1) / count);
  world_.count_bytes(moved);
  const auto shared = world_.share(action.stamp, action.reduce);
  const Seconds takes = world_.transfer(moved);
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
  StateHash hash = simulated_outer_step(base, reduce.participants, deltas);
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
  later([this, outer_step = action.outer_step, fragment = action.fragment, hash = action.hash,
         was_mine = action.was_mine] { see_commit(outer_step, fragment, hash, was_mine); });
}

void SimulatedIsland::perform(const FetchState& action) {
  const double bytes = world_.options().parameters * 8;  // anchor and momentum, f32
  const std::uint64_t number = ++num_fetches_;
  const Seconds takes = world_.transfer(bytes);
  world_.occupy(index_, takes);
  fetches_from_.clear();
  fetches_until_ = world_.now() + takes;
  for (const Source& source : action.sources) {
    fetches_from_.push_back(source.island);
    if (const SimulatedIsland* other = world_.island_of(source.island)) {
      world_.occupy(other->index(), takes);
    }
  }
  post(takes, [this, action, number] { end_fetch(action, number); });
}

void SimulatedIsland::end_fetch(const FetchState& action, std::uint64_t number) {
  if (number != num_fetches_) return;
  for (const Source& source : action.sources) {
    const SimulatedIsland* other = world_.island_of(source.island);
    if (other == nullptr || !world_.reaches(index_, source.island, false)) continue;
    const Member& member = other->member();
    if (member.outer_step() != action.outer_step || member.hashes() != action.hashes) continue;
    world_.count_bytes(world_.options().parameters * 8);
    return handle({0, StateFetched{action.outer_step, action.hashes}});
  }
  handle({0, FetchFailed{"nobody has it"}});
}

void SimulatedIsland::perform(const Adopt& action) {
  ++num_fetches_;  // one that is under way is for nothing
  later([this, drops_work = action.drops_work, outer_step = member_->outer_step(),
         hashes = member_->hashes()] { adopt(drops_work, outer_step, hashes); });
}

void SimulatedIsland::perform(const StartRound& action) {
  later([this, lease = action.lease, follows_drop = action.follows_drop] {
    if (follows_drop) is_exchanging_ = false;
    leases_.push_back(lease);
    train();
  });
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
  has_ended_ = true;
  was_turned_out_ = !action.is_done;
  const bool may_lack_it =
      !world_.options().coordinator_ends && action.why.find("nobody") != std::string::npos;
  const bool has_final_state =
      action.is_done && !is_leaving_ && world_.is_finished() && !may_lack_it;
  if (has_final_state) {
    world_.audit().ended(member_->id(), member_->outer_step(), member_->hashes(), world_.now());
  }
  world_.disconnect(index_, false);
}

// ---- the trainer ----

void SimulatedIsland::train() {
  const bool must_wait = is_exchanging_ && !world_.options().overlaps;
  if (is_training_ || must_wait || leases_.empty()) return;
  const Lease lease = leases_.front();
  leases_.pop_front();
  is_training_ = true;
  work_.in_round = true;
  work_.left = lease.ranges;
  save();
  const SimulationOptions& options = world_.options();
  const Seconds step =
      options.step_seconds / speed_ * (1 + options.jitter * (2 * world_.uniform() - 1));
  const Seconds duration = step * static_cast<double>(lease.inner_steps);
  post(duration, [this, step, duration, round = ++round_] {
    if (round != round_) return;
    trained_seconds_ += duration;
    is_training_ = false;
    append(work_.trained, work_.left);
    work_.left.clear();
    handle({0, Progress{.inner_steps = 0, .batches_per_second = 1 / step}});
    if (!is_exchanging_) hand_in();
  });
}

void SimulatedIsland::hand_in() {
  const int fragment = static_cast<int>(work_.outer_step % world_.options().plan.num_fragments);
  const StateHash base = work_.hashes[static_cast<std::size_t>(fragment)];
  const double norm = std::exchange(next_norm_, 1);
  const Ready ready = {.base_hash = base,
                       .tokens = num_batches(work_.trained) * kTokensOfBatch,
                       .consumed = work_.trained,
                       .norm = norm,
                       .is_finite = norm >= 0,
                       .loss = 1};
  handed_in_ = work_.outer_step;
  num_handed_in_ = work_.trained.size();
  is_exchanging_ = true;
  work_.in_round = false;
  deltas_[handed_in_] = {base, work_.trained};
  deltas_.erase(deltas_.begin(), deltas_.lower_bound(handed_in_ - 1));
  handle({0, RoundDone{num_adopted_, handed_in_, ready}});
}

void SimulatedIsland::see_commit(std::int64_t outer_step, int fragment, const StateHash& hash,
                                 bool was_mine) {
  work_.outer_step = outer_step + 1;
  work_.hashes[static_cast<std::size_t>(fragment)] = hash;
  if (was_mine) {
    work_.trained.erase(work_.trained.begin(),
                        work_.trained.begin() + static_cast<std::ptrdiff_t>(num_handed_in_));
  }
  if (outer_step >= handed_in_) is_exchanging_ = false;
  save();
  if (!is_exchanging_ && work_.in_round && !is_training_) hand_in();
  train();
}

void SimulatedIsland::adopt(bool drops_work, std::int64_t outer_step,
                            const std::vector<StateHash>& hashes) {
  work_.outer_step = outer_step;
  work_.hashes = hashes;
  is_exchanging_ = false;
  if (drops_work) {
    ++num_adopted_;
    ++round_;
    work_.trained.clear();
    work_.left.clear();
    work_.in_round = is_training_ = false;
    leases_.clear();
  }
  save();
  if (work_.in_round && !is_training_) hand_in();
  train();
}

// A checkpoint holds a state that is the run's as far as this island knows.
void SimulatedIsland::save() {
  const bool is_whole =
      work_.outer_step == member_->outer_step() && work_.hashes == member_->hashes();
  const int every = std::max(1, world_.options().checkpoint_every);
  if (!is_whole || work_.outer_step % every != 0) return;
  saved_ = work_;
  for (const Lease& lease : leases_) append(saved_.left, lease.ranges);
  saved_.in_round = saved_.in_round || !saved_.left.empty() || !saved_.trained.empty();
}

}  // namespace atl::island
