// What goes wrong, and is repaired: the faults of Simulator.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "atoll/island/simulation/simulator.h"

namespace atl::island {

namespace {

using Kind = SimulatedFault::Kind;

}  // namespace

void Simulator::add_island() {
  const int index = static_cast<int>(islands_.size());
  const auto place = static_cast<std::size_t>(index);
  const double speed = place < options_.speeds.size() ? options_.speeds[place] : 1;
  islands_.push_back(std::make_unique<SimulatedIsland>(*this, index, speed));
  connection_of_.push_back(kNoConnection);
  cuts_.push_back({});
  isolated_.push_back(0);
  busy_until_.push_back(0);
  islands_.back()->start();
  if (options_.mtbf > 0) crash_sometimes(index);
}

void Simulator::crash_sometimes(int island) {
  const Seconds wait = -std::log(1 - uniform()) * options_.mtbf;
  schedule(wait, [this, island] {
    begin({.kind = Kind::kCrash, .lasts = options_.restart_after, .island = island});
    crash_sometimes(island);
  });
}

void Simulator::add(const SimulatedFault& fault) {
  schedule(fault.when - now(), [this, fault] { begin(fault); });
}

void Simulator::begin_at_coordinator(const SimulatedFault& fault) {
  if (fault.kind == Kind::kKillCoordinator) return kill_coordinator(fault.lasts);
  if (fault.kind == Kind::kKillCoordinatorMidway) {
    dies_midway_ = true;
    down_for_ = fault.lasts;
    return;
  }
  ++coordinator_stops_;
  schedule(fault.lasts, [this] {
    --coordinator_stops_;
    while (coordinator_stops_ == 0 && !waiting_.empty()) {
      const CoordinatorEvent event = std::move(waiting_.front());
      waiting_.pop_front();
      handle(event);
    }
  });
}

void Simulator::begin(const SimulatedFault& fault) {
  trace([&] {
    return fmt::format("{:9.4f} fault {} of island {} for {:.2f} s", now(),
                       static_cast<int>(fault.kind), fault.island + 1, fault.lasts);
  });
  if (fault.kind == Kind::kJoin) return add_island();
  const bool is_coordinators = fault.kind == Kind::kKillCoordinator ||
                               fault.kind == Kind::kKillCoordinatorMidway ||
                               fault.kind == Kind::kStopCoordinator;
  if (is_coordinators) return begin_at_coordinator(fault);
  const auto index = static_cast<std::size_t>(fault.island);
  SimulatedIsland& island = *islands_[index];
  const auto afterwards = [&](std::function<void()> what) {
    schedule(fault.lasts, std::move(what));
  };
  switch (fault.kind) {
    case Kind::kCrash:
    case Kind::kSilentCrash:
      if (!island.is_up()) return;
      ++num_crashes_;
      island.crash();
      disconnect(fault.island, fault.kind == Kind::kSilentCrash);
      return afterwards([&island] { island.start(); });
    case Kind::kStop:
      island.stop(true);
      return afterwards([&island] { island.stop(false); });
    case Kind::kCut:
    case Kind::kCutToCoordinator:
    case Kind::kCutFromCoordinator: {
      const bool to = fault.kind != Kind::kCutFromCoordinator;
      const bool from = fault.kind != Kind::kCutToCoordinator;
      const int alone = fault.kind == Kind::kCut ? 1 : 0;
      isolated_[index] += alone;
      if (to) cut(fault.island, kToCoordinator, 1);
      if (from) cut(fault.island, kToIsland, 1);
      return afterwards([this, to, from, alone, index] {
        isolated_[index] -= alone;
        if (to) cut(static_cast<int>(index), kToCoordinator, -1);
        if (from) cut(static_cast<int>(index), kToIsland, -1);
      });
    }
    case Kind::kCutPair: {
      const std::pair pair = {std::min(fault.island, fault.other),
                              std::max(fault.island, fault.other)};
      ++pair_cuts_[pair];
      return afterwards([this, pair] { --pair_cuts_[pair]; });
    }
    case Kind::kFlipResult:
      return island.flip_results(1);
    case Kind::kAlwaysFlips:
      return island.flip_results(1 << 30);
    case Kind::kNotFinite:
      return island.spoil_norm(-1);
    case Kind::kHugeNorm:
      return island.spoil_norm(1e6);
    case Kind::kLeave:
      return island.leave();
    case Kind::kRestart:
      return island.leave(fault.lasts);
    case Kind::kSlow:
      island.slow_down(0.25);
      return afterwards([&island] { island.slow_down(4); });
    default:
      return;
  }
}

}  // namespace atl::island
