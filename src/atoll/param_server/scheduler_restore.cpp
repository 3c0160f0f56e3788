// How a scheduler goes on where the one before it was killed.

#include <algorithm>
#include <map>

#include "atoll/base/error.h"
#include "atoll/param_server/scheduler.h"

namespace atl::param_server {

SchedulerState Scheduler::state() const {
  SchedulerState state;
  state.term = term_;
  state.has_spec = spec_.has_value();
  if (spec_) state.spec = *spec_;
  state.view = view_;
  state.last_server = last_server_;
  for (const auto& [session, worker] : workers_) {
    state.workers.push_back({.number = worker.number, .identity = worker.identity});
  }
  for (const Lane& lane : lanes_) {
    const auto owner = workers_.find(lane.owner);
    state.lanes.push_back({.owner = owner == workers_.end() ? -1 : owner->second.number,
                           .next = lane.next,
                           .is_releasing = lane.is_releasing});
  }
  for (const auto& [slice, server] : leaving_) state.leaving.push_back({slice, server});
  state.until = until_;
  state.is_loaded = is_loaded_;
  state.is_begun = is_begun_;
  state.is_saving = is_saving_;
  state.stops = stops_;
  state.is_over = is_over_;
  state.end_why = end_why_;
  return state;
}

void Scheduler::restore(const SchedulerState& state) {
  term_ = {.run = state.term.run, .epoch = state.term.epoch + 1};
  is_changed_ = true;  // the epoch
  last_server_ = state.last_server;
  stops_ = state.stops;
  is_over_ = state.is_over;
  end_why_ = state.end_why;
  if (state.has_spec) spec_ = state.spec;
  view_ = state.view;
  SessionId absent = kAbsent;
  if (state.is_begun || is_over_) {
    for (const SchedulerState::KnownWorker& worker : state.workers) {
      workers_[++absent] = {.number = worker.number, .identity = worker.identity};
    }
  }
  if (!spec_) return;
  for (const SchedulerState::KnownLane& lane : state.lanes) {
    const auto owner = std::find_if(workers_.begin(), workers_.end(), [&](const auto& worker) {
      return worker.second.number == lane.owner;
    });
    const bool has_owner = owner != workers_.end();
    lanes_.push_back({.owner = has_owner ? owner->first : 0,
                      .next = lane.next,
                      .is_releasing = has_owner && lane.is_releasing});
  }
  until_ = state.until;
  if (!state.is_loaded) {
    // The lead gives its state to servers as they come; what it had given is given again.
    view_.servers.clear();
    view_.chains.assign(spec_->slices.size(), {});
    view_.joining.assign(spec_->slices.size(), kNobody);
    return;
  }
  for (const ServerEntry& server : view_.servers) {
    servers_[++absent] = {.id = server.id, .address = server.address, .slices = {}};
  }
  for (const SchedulerState::Leaving& leaving : state.leaving) {
    leaving_[leaving.slice] = leaving.server;
  }
  is_placed_ = is_loaded_ = true;
  placed_view_ = view_.number;
  is_begun_ = state.is_begun;
  is_saving_ = state.is_saving;
  if (is_saving_) waits_since_ = now_;
  number_view();
}

// Views of a scheduler that goes on are newer than all of those before, also than views that it has
// not written down.
void Scheduler::number_view() {
  constexpr int kViewsOfAnEpoch = 40;  // bits
  view_.number = std::max(view_.number + 1, term_.epoch << kViewsOfAnEpoch);
}

// A server that has kept what it had is what it was. Another at its address, or itself with what
// its disk had, is a new one.
bool Scheduler::comes_back(SessionId session, const ServerHello& hello) {
  const auto at = std::find_if(servers_.begin(), servers_.end(), [&](const auto& entry) {
    return is_absent(entry.first) &&
           (entry.second.address == hello.address ||
            (hello.term.run == term_.run && entry.second.id == hello.server));
  });
  if (at == servers_.end()) return false;
  const bool is_same = hello.term.run == term_.run && at->second.id == hello.server &&
                       at->second.address == hello.address && !hello.is_restored;
  if (!is_same) {
    closed(at->first);
    return false;
  }
  auto entry = servers_.extract(at);
  entry.key() = session;
  servers_.insert(std::move(entry));
  notices_.push_back(fmt::format("the server at {} is back", hello.address));
  send(session, Welcome{.term = term_, .server = hello.server});
  if (spec_) send(session, Offer{*spec_});
  send(session, view_);
  return true;
}

// A worker says which lanes it has: what it had done since the last write is not done again.
bool Scheduler::comes_back(SessionId session, const WorkerHello& hello) {
  const auto at = std::find_if(workers_.begin(), workers_.end(), [&](const auto& entry) {
    return is_absent(entry.first) && entry.second.number == hello.worker;
  });
  if (at == workers_.end()) return false;
  std::map<std::int64_t, std::int64_t> claimed;
  for (const LaneAt& lane : hello.lanes) {
    lane_of(lane);
    claimed[lane.lane] = lane.step;
  }
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    if (lane.owner != at->first) continue;
    const auto own = claimed.find(static_cast<std::int64_t>(i));
    if (own == claimed.end()) {
      lane = {.owner = 0, .next = lane.next, .is_releasing = false};
      continue;
    }
    lane.owner = session;
    lane.next = std::max(lane.next, own->second);
  }
  workers_.erase(at);
  return true;
}

void Scheduler::give_up_absent() {
  const auto is_any = [](const auto& sessions) {
    return !sessions.empty() && is_absent(sessions.rbegin()->first);
  };
  if (!is_any(servers_) && !is_any(workers_)) return;
  if (!absent_since_) absent_since_ = now_;
  if (now_ - *absent_since_ <= patience_.return_seconds) return;
  while (is_any(servers_)) closed(SessionId{servers_.rbegin()->first});
  while (is_any(workers_)) closed(SessionId{workers_.rbegin()->first});
}

}  // namespace atl::param_server
