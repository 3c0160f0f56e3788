// Who trains on what: the leases half of Coordinator.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/island/coordinator/coordinator.h"
#include "atoll/island/protocol/range_set.h"

namespace atl::island {

namespace {

// Islands this much slower than the fastest, or less, take as many steps: speeds are never exact.
constexpr double kEqual = 0.9;
// Rounds at the greatest stretch, until an island that still has no state is not waited for.
constexpr int kPatientRounds = 4;

std::int64_t num_batches(std::span<const BatchRange> ranges) {
  std::int64_t sum = 0;
  for (const BatchRange& range : ranges) sum += range.size();
  return sum;
}

}  // namespace

void Coordinator::begin_run() {
  const int there = members_.count(IslandState::kActive);
  const int missing = std::max(1, options_.plan.min_islands) - there;
  if (missing > 0 && there > 0 && missing != num_missing_) {
    notice(fmt::format("training begins with {} islands; {} more wanted", there + missing, missing),
           false);
  }
  num_missing_ = missing;
  // So that the islands can log it too; at most now and then, because a thousand may join at once.
  if (missing > 0 && there > 0 && view_changed_ && now_ >= next_view_) {
    next_view_ = now_ + 1;
    announce_view();
  }
  has_begun_ = missing <= 0;
  if (!has_begun_) return;
  step_began_ = now_;
  begin_round(state_.outer_step(), state_.policy().schedule());
  grant_idle(Phase::kTraining);
}

void Coordinator::find_fastest() {
  fastest_ = 0;
  for (const Island& island : members_.all()) {
    if (island.state() == IslandState::kActive) {
      fastest_ = std::max(fastest_, island.batches_per_second);
    }
  }
}

bool Coordinator::has_open_lease(const Island& island) const {
  const std::int64_t handed_in = island.ready ? num_batches(island.ready->consumed) : 0;
  return num_batches(state_.leases().held_by(island.id)) > handed_in;
}

void Coordinator::grant_idle(Phase phase) {
  std::vector<IslandId> idle;
  for (const Island& island : members_.all()) {
    const bool is_idle = island.state() == IslandState::kActive && island.phase() == Phase::kIdle;
    if (is_idle) idle.push_back(island.id);
  }
  grant(idle, phase);
}

// Notes what all leases of a round have in common, whenever they are granted.
void Coordinator::begin_round(std::int64_t outer_step, const RoundSchedule& schedule) {
  if (outer_step == round_) return;
  round_ = outer_step;
  round_steps_ = state_.policy().is_fixed() ? options_.plan.inner_steps : schedule.inner_steps;
  round_from_ = now_;
  round_begin_ = state_.leases().num_given();
  const int before = std::exchange(longer_, stretch());
  if (longer_ == 1 && before > 1) notice("rounds are as long as they were", false);
}

// By which factor to lengthen rounds, so that the slowest fetch of state ends before the next state
// exists: doubled for each round that overtook a fetch, after the first. Training goes on
// meanwhile.
int Coordinator::stretch() {
  if (members_.count(IslandState::kSyncing) == 0) return 1;
  int most = 1;
  const Island* slowest = nullptr;
  for (const Island& island : members_.all()) {
    if (island.state() != IslandState::kSyncing) continue;
    const int rounds = island.overtaken / options_.plan.num_fragments;
    int factor = 1;
    int num_longest = 0;
    for (int i = 1; i < rounds && num_longest <= kPatientRounds; ++i) {
      factor = std::min(2 * factor, options_.max_stretch);
      num_longest += factor == options_.max_stretch ? 1 : 0;
    }
    if (num_longest > kPatientRounds || factor <= most) continue;
    most = factor;
    slowest = &island;
  }
  if (slowest != nullptr && most != longer_) {
    notice(
        fmt::format("the state changes faster than {} can fetch it: a round is {} times longer "
                    "until it has it",
                    slowest->name, most));
  }
  return most;
}

// How many batches each is to have now, if so many are free. At the end of the run what is left is
// shared, so that all end together.
std::vector<std::int64_t> Coordinator::counts_of(const std::vector<IslandId>& islands) const {
  auto all_steps = static_cast<double>(round_steps_);
  // An island that joins a longer round ends it with the others.
  if (longer_ > 1) all_steps = all_steps * longer_ - (now_ - round_from_) * fastest_;
  std::vector<std::int64_t> counts;
  std::int64_t sum = 0;
  for (const IslandId id : islands) {
    const Island& island = members_.all()[id - 1];
    const double ratio = fastest_ > 0 ? island.batches_per_second / fastest_ : 1;
    const bool is_slower = options_.proportional_steps && ratio > 0 && ratio < kEqual;
    // An island that is always too late gets fewer batches.
    const double share = (is_slower ? ratio : 1) / (1 + island.drops);
    const double steps = std::round(all_steps * share);
    counts.push_back(std::max<std::int64_t>(1, static_cast<std::int64_t>(steps)));
    sum += counts.back();
  }
  const std::int64_t free = state_.leases().num_free();
  if (free >= sum) return counts;
  for (std::int64_t& count : counts) {
    const double share = static_cast<double>(count) / static_cast<double>(sum);
    count = std::max<std::int64_t>(1, std::llround(share * static_cast<double>(free)));
  }
  return counts;
}

// Leases in the order given; those that are idle are in `phase` then.
void Coordinator::grant(const std::vector<IslandId>& islands, Phase phase) {
  const std::vector<std::int64_t> counts = counts_of(islands);
  // Computed before the first lease is sent, because each lease says how many batches all have.
  const std::int64_t now = std::min(state_.leases().num_free(),
                                    std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
  const std::int64_t round_batches =
      std::max(now, state_.leases().num_given() + now - round_begin_);
  for (std::size_t i = 0; i < islands.size(); ++i) {
    Island& island = members_[islands[i]];
    LogLease lease = state_.grant(island.id, counts[i]);
    const std::int64_t granted = num_batches(lease.ranges);
    // It has trained batches that no outer step has committed: an empty lease asks for them.
    // Or its state is wanted for the last mean.
    const bool must_hand_in = granted == 0 && island.phase() == Phase::kIdle &&
                              (is_averaging() || !state_.leases().held_by(island.id).empty());
    if (granted == 0 && !must_hand_in) continue;
    if (island.phase() == Phase::kIdle) members_.set_phase(island, phase);
    Lease message = {.ranges = lease.ranges,
                     .inner_steps = granted,
                     .round_begin = round_begin_,
                     .round_batches = round_batches};
    if (granted > 0) actions_.push_back(AppendToLog{std::move(lease)});
    send(island, std::move(message));
  }
}

// Returns all batches that are leased to the island and not in `holds`.
void Coordinator::keep_only(Island& island, std::span<const BatchRange> holds) {
  const auto kept = RangeSet::of(holds);
  RangeSet back;
  for (const BatchRange& range : state_.leases().held_by(island.id)) back.add(range);
  if (kept) back.remove(*kept);
  if (back.empty()) return;
  undo_exchange(island.id, back);
  append(LogReturn{.island = island.id, .ranges = back.ranges()});
  if (has_begun_ && !is_finished()) grant_idle(Phase::kEarly);
}

}  // namespace atl::island
