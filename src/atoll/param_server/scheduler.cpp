#include "atoll/param_server/scheduler.h"

#include <algorithm>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/quantity.h"
#include "atoll/param_server/placement.h"

namespace atl::param_server {

namespace {

// Slices that are copied at once: more would only wait in the same links.
constexpr std::size_t kMovesAtOnce = 16;
// A worker that is told to stop may be this many steps further than it has said.
constexpr std::int64_t kStepsToStop = 2;

}  // namespace

template <typename T>
void Scheduler::take(SessionId /*session*/, const T& /*other*/) {
  throw damaged_error("a message that the scheduler does not take");
}

void Scheduler::received(SessionId session, const Message& message) {
  const bool is_clock = std::holds_alternative<Done>(message);
  is_changed_ = is_changed_ || !is_clock;
  is_moved_ = is_moved_ || is_clock;
  std::visit([&](const auto& body) { take(session, body); }, message);
}

void Scheduler::refuse(SessionId session, const std::string& why) {
  notices_.push_back("refused: " + why);
  sends_.push_back({session, Refused{why}, /*closes=*/true});
}

void Scheduler::refuse_other_run(SessionId session, std::int64_t worker) {
  refuse(session, fmt::format("worker {} has another model, data or settings than worker 0; start "
                              "it with the same recipe",
                              worker));
}

SessionId Scheduler::lead() const {
  for (const auto& [session, worker] : workers_) {
    if (worker.number == 0) return session;
  }
  return 0;
}

std::vector<ServerId> Scheduler::server_ids() const {
  std::vector<ServerId> ids;
  for (const auto& [session, server] : servers_) ids.push_back(server.id);
  return ids;
}

void Scheduler::take(SessionId session, const WorkerHello& hello) {
  if (hello.version != kProtocolVersion) {
    return refuse(session, fmt::format("the worker speaks version {} of the protocol, and the "
                                       "servers {}: start all of them with the same atoll",
                                       hello.version, kProtocolVersion));
  }
  for (const auto& [other, worker] : workers_) {
    if (worker.number != hello.worker || other == session || is_absent(other)) continue;
    return refuse(session, fmt::format("there is a worker {} already; give each worker another "
                                       "sync.worker",
                                       hello.worker));
  }
  if (servers_.contains(session)) throw damaged_error("a server says that it is a worker");
  if (spec_ && spec_->identity != hello.identity) return refuse_other_run(session, hello.worker);
  const bool is_back = comes_back(session, hello);
  workers_[session] = {.number = hello.worker, .identity = hello.identity};
  if (is_over_) return send(session, End{end_why_});
  std::int64_t step = spec_ ? spec_->first_step : 0;
  if (!lanes_.empty()) {
    step = std::min_element(lanes_.begin(), lanes_.end(), [](const Lane& a, const Lane& b) {
             return a.next < b.next;
           })->next;
  }
  if (is_begun_) {
    send(session, Welcome{.term = term_, .server = kNobody, .shall_load = false, .step = step});
    send(session, view_);
    notices_.push_back(is_back
                           ? fmt::format("worker {} is back", hello.worker)
                           : fmt::format("worker {} has joined at step {}", hello.worker, step));
    share_lanes();
    assign(session);
    if (is_saving_ && hello.worker == 0) send(session, Save{until_});
    meet_at_fence();
    return;
  }
  begin_if_all_are_here();
}

void Scheduler::take(SessionId session, const Offer& offer) {
  if (session != lead()) throw damaged_error("a spec of a worker that does not lead");
  check_spec(offer.spec);
  if (spec_) {
    // The lead has come again; its checkpoint may be older than the run, which goes on as it is.
    return;
  }
  spec_ = offer.spec;
  // Those that came before it have not been compared yet.
  std::erase_if(workers_, [&](const auto& entry) {
    const bool differs = entry.second.identity != spec_->identity;
    if (differs) refuse_other_run(entry.first, entry.second.number);
    return differs;
  });
  for (auto& [other, server] : servers_) send(other, offer);
  lanes_.assign(static_cast<std::size_t>(spec_->num_lanes), {});
  for (Lane& lane : lanes_) lane.next = spec_->first_step;
  view_.chains.assign(spec_->slices.size(), {});
  view_.joining.assign(spec_->slices.size(), kNobody);
  until_ = next_fence(spec_->first_step);
  begin_if_all_are_here();
}

void Scheduler::take(SessionId session, const ServerHello& hello) {
  if (hello.version != kProtocolVersion) {
    return refuse(session, fmt::format("the server at {} speaks version {} of the protocol, and "
                                       "the others {}: start all of them with the same atoll",
                                       hello.address, hello.version, kProtocolVersion));
  }
  if (hello.term.run == term_.run && hello.term.epoch > term_.epoch) {
    return refuse(session, fmt::format("the server at {} has heard of a newer scheduler (epoch {}, "
                                       "and this is {}): two of them run; end this one",
                                       hello.address, hello.term.epoch, term_.epoch));
  }
  if (spec_ && !hello.identity.empty() && hello.identity != spec_->identity) {
    return refuse(session, fmt::format("the server at {} has slices of another run; give it "
                                       "another --dir",
                                       hello.address));
  }
  for (const auto& [other, server] : servers_) {
    if (server.address != hello.address || other == session || is_absent(other)) continue;
    return refuse(session, fmt::format("there is a server at {} already", hello.address));
  }
  if (workers_.contains(session)) throw damaged_error("a worker says that it is a server");
  if (is_over_) {
    comes_back(session, hello);
    return send(session, End{end_why_});
  }
  if (comes_back(session, hello)) return;
  Server& server = servers_[session];
  server = {.id = ++last_server_, .address = hello.address, .slices = hello.slices};
  send(session, Welcome{.term = term_, .server = server.id});
  if (spec_) send(session, Offer{*spec_});
  if (!is_placed_) return begin_if_all_are_here();
  notices_.push_back(fmt::format("the server at {} has joined", hello.address));
  give_back(server);
  join_servers();
  publish_view();
}

// What no server has now, a server that comes back has on its disk.
void Scheduler::give_back(Server& server) {
  if (!is_loaded_) return;
  std::size_t count = 0;
  for (const std::uint32_t slice : server.slices) {
    if (slice >= view_.chains.size() || !view_.chains[slice].empty()) continue;
    view_.chains[slice] = {server.id};
    ++count;
  }
  if (count == 0) return;
  notices_.push_back(fmt::format("the server at {} came back with {}", server.address,
                                 counted(static_cast<std::int64_t>(count), "slice")));
}

void Scheduler::begin_if_all_are_here() {
  if (!spec_ || is_over_) return;
  if (!is_placed_) {
    if (static_cast<std::int64_t>(servers_.size()) < spec_->num_servers || lead() == 0) return;
    view_.chains = place(spec_->slices, server_ids(), spec_->replicas);
    view_.joining.assign(spec_->slices.size(), kNobody);
    is_placed_ = true;
    publish_view();
    placed_view_ = view_.number;
    send(lead(),
         Welcome{.term = term_, .server = kNobody, .shall_load = true, .step = spec_->first_step});
  }
  if (!is_loaded_ || is_begun_) return;
  if (static_cast<std::int64_t>(workers_.size()) < spec_->num_workers) return;
  is_begun_ = true;
  notices_.push_back(fmt::format("{} and {} are here; training begins at step {}",
                                 counted(static_cast<std::int64_t>(servers_.size()), "server"),
                                 counted(static_cast<std::int64_t>(workers_.size()), "worker"),
                                 spec_->first_step));
  for (const auto& [session, worker] : workers_) {
    send(session,
         Welcome{.term = term_, .server = kNobody, .shall_load = false, .step = spec_->first_step});
    send(session, view_);
  }
  share_lanes();
  meet_at_fence();  // a run that has no step left
}

void Scheduler::take(SessionId session, const Loaded& loaded) {
  if (session != lead() || !is_placed_) return;
  if (loaded.view < placed_view_) return;  // it is asked for all of it again
  is_loaded_ = true;
  say_if_complete();
  begin_if_all_are_here();
  join_servers();
}

void Scheduler::publish_view() {
  number_view();
  view_.servers.clear();
  for (const auto& [session, server] : servers_) {
    view_.servers.push_back({server.id, server.address});
  }
  for (const auto& [session, server] : servers_) send(session, view_);
  for (const auto& [session, worker] : workers_) send(session, view_);
}

void Scheduler::closed(SessionId session) {
  is_changed_ = true;
  if (const auto at = servers_.find(session); at != servers_.end()) {
    const Server server = at->second;
    servers_.erase(at);
    server_is_gone(session, server);
    return;
  }
  const auto at = workers_.find(session);
  if (at == workers_.end()) return;
  const std::int64_t number = at->second.number;
  workers_.erase(at);
  if (is_over_) return;
  for (Lane& lane : lanes_) {
    if (lane.owner == session) lane = {.owner = 0, .next = lane.next, .is_releasing = false};
  }
  if (!is_begun_) {
    if (number == 0 && !is_loaded_) is_placed_ = false;  // nobody loads what was placed
    return;
  }
  notices_.push_back(fmt::format("worker {} is gone", number));
  share_lanes();
  meet_at_fence();
}

void Scheduler::server_is_gone(SessionId /*session*/, const Server& server) {
  if (!is_placed_ || is_over_) return;
  if (!is_loaded_) {
    // Nothing is lost: the lead gives its state to those that are left, when there are enough.
    is_placed_ = false;
    begin_if_all_are_here();
    return;
  }
  for (std::size_t i = 0; i < view_.chains.size(); ++i) {
    std::erase(view_.chains[i], server.id);
    const auto slice = static_cast<std::uint32_t>(i);
    if (view_.joining[i] == server.id || view_.chains[i].empty()) {
      view_.joining[i] = kNobody;
      leaving_.erase(slice);
    }
    if (const auto gone = leaving_.find(slice);
        gone != leaving_.end() && gone->second == server.id) {
      leaving_.erase(gone);
    }
  }
  const std::int64_t lost = lost_slices();
  notices_.push_back(
      lost == 0 ? fmt::format("the server at {} is gone; its slices have copies", server.address)
                : fmt::format("the server at {} is gone with the only copy of {}; training waits "
                              "until it comes back from its disk",
                              server.address, counted(lost, "slice")));
  join_servers();
  publish_view();
}

std::int64_t Scheduler::lost_slices() const {
  return std::count_if(view_.chains.begin(), view_.chains.end(),
                       [](const std::vector<ServerId>& chain) { return chain.empty(); });
}

// Begins what plan_moves wants, as far as there is room.
void Scheduler::join_servers() {
  if (!is_loaded_ || is_over_) return;
  auto room = static_cast<std::int64_t>(kMovesAtOnce) -
              std::count_if(view_.joining.begin(), view_.joining.end(),
                            [](ServerId id) { return id != kNobody; });
  if (room <= 0) return;
  const std::vector<ServerId> ids = server_ids();
  for (const Move& move : plan_moves(spec_->slices, view_, ids, spec_->replicas, leaving_)) {
    if (room-- <= 0) break;
    view_.joining[move.slice] = move.to;
    if (move.from != kNobody) leaving_[move.slice] = move.from;
  }
}

void Scheduler::take(SessionId session, const Ready& ready) {
  const auto at = servers_.find(session);
  if (at == servers_.end() || ready.slice >= view_.chains.size()) return;
  std::vector<ServerId>& chain = view_.chains[ready.slice];
  if (chain.empty() || chain.front() != at->second.id) return;  // an old head
  if (view_.joining[ready.slice] != ready.server) return;
  chain.push_back(ready.server);
  view_.joining[ready.slice] = kNobody;
  if (const auto gone = leaving_.find(ready.slice); gone != leaving_.end()) {
    // Where a server of the chain was lost during the move, who would leave is needed.
    if (std::ssize(chain) > spec_->replicas) std::erase(chain, gone->second);
    leaving_.erase(gone);
  }
  join_servers();
  publish_view();
  say_if_complete();
}

// After servers were lost or have joined: all slices have their copies, evenly.
void Scheduler::say_if_complete() {
  const bool is_copying = std::any_of(view_.joining.begin(), view_.joining.end(),
                                      [](ServerId id) { return id != kNobody; });
  if (is_copying || lost_slices() > 0) return;
  const auto wanted = std::min<std::int64_t>(spec_->replicas, std::ssize(servers_));
  const bool all =
      std::all_of(view_.chains.begin(), view_.chains.end(),
                  [&](const std::vector<ServerId>& chain) { return std::ssize(chain) >= wanted; });
  if (!all) return;
  notices_.push_back(
      fmt::format("all copies are complete, on {}", counted(std::ssize(servers_), "server")));
}

std::size_t Scheduler::lanes_of(SessionId worker) const {
  return static_cast<std::size_t>(
      std::count_if(lanes_.begin(), lanes_.end(),
                    [&](const Lane& lane) { return lane.owner == worker && !lane.is_releasing; }));
}

// Lanes that nobody has go to the workers with the fewest; then those with most give some away.
void Scheduler::share_lanes() {
  if (!is_begun_ || workers_.empty() || is_over_) return;
  const bool keeps_own = spec_->consistency == Consistency::kEasgd;
  std::set<SessionId> changed;
  const auto fewest = [&] {
    return std::min_element(workers_.begin(), workers_.end(),
                            [&](const auto& a, const auto& b) {
                              return std::pair(lanes_of(a.first), a.second.number) <
                                     std::pair(lanes_of(b.first), b.second.number);
                            })
        ->first;
  };
  for (Lane& lane : lanes_) {
    if (lane.owner != 0) continue;
    const SessionId to = fewest();
    if (keeps_own && lanes_of(to) > 0) break;  // a lane's own model is with its worker
    lane.owner = to;
    changed.insert(to);
  }
  for (bool moved = !keeps_own; moved;) {
    moved = false;
    const SessionId to = fewest();
    for (auto lane = lanes_.rbegin(); lane != lanes_.rend() && !moved; ++lane) {
      if (lane->is_releasing || lane->owner == to) continue;
      if (lanes_of(lane->owner) < lanes_of(to) + 2) continue;
      // Counted as the other's from now on; it gets it when its worker has let it go.
      const auto releasing = static_cast<std::size_t>(std::count_if(
          lanes_.begin(), lanes_.end(), [](const Lane& other) { return other.is_releasing; }));
      if (lanes_of(lane->owner) < lanes_of(to) + releasing + 2) continue;
      lane->is_releasing = moved = true;
      changed.insert(lane->owner);
    }
  }
  for (const SessionId worker : changed) assign(worker);
}

void Scheduler::assign(SessionId worker) {
  Assign assign{.lanes = {}, .until = until_};
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i].owner != worker || lanes_[i].is_releasing) continue;
    assign.lanes.push_back({static_cast<std::int64_t>(i), lanes_[i].next});
  }
  send(worker, std::move(assign));
}

void Scheduler::assign_all() {
  for (const auto& [session, worker] : workers_) assign(session);
}

Scheduler::Lane& Scheduler::lane_of(const LaneAt& at) {
  if (at.lane < 0 || at.lane >= std::ssize(lanes_) || at.step < 0 || at.step > spec_->num_steps) {
    throw damaged_error("step {} of lane {}, and there are {}", at.step, at.lane, lanes_.size());
  }
  return lanes_[static_cast<std::size_t>(at.lane)];
}

void Scheduler::take(SessionId session, const Done& done) {
  if (!workers_.contains(session)) return;
  Lane& lane = lane_of(done.at);
  if (lane.owner == session) lane.next = std::max(lane.next, done.at.step);
  meet_at_fence();
}

void Scheduler::take(SessionId session, const Released& released) {
  Lane& lane = lane_of(released.at);
  if (lane.owner != session || !lane.is_releasing) return;
  lane = {.owner = 0, .next = std::max(lane.next, released.at.step), .is_releasing = false};
  share_lanes();
  meet_at_fence();
}

void Scheduler::take(SessionId /*session*/, const StopRun& /*stop*/) {
  if (stops_ || is_over_) return;
  stops_ = true;
  if (!is_begun_) return end("stopped before it began");
  if (is_saving_) return;
  std::int64_t furthest = 0;
  for (const Lane& lane : lanes_) furthest = std::max(furthest, lane.next);
  until_ = std::min(until_, furthest + kStepsToStop);
  assign_all();
  meet_at_fence();
}

std::int64_t Scheduler::next_fence(std::int64_t step) const {
  if (spec_->fence_every == 0) return spec_->num_steps;
  return std::min(spec_->num_steps, (step / spec_->fence_every + 1) * spec_->fence_every);
}

// The next start of the run goes on from it. A scheduler that was started again knows only that
// lanes have come past the first one that was due.
bool Scheduler::has_checkpoint() const {
  return has_saved_ || spec_->first_step > 0 || until_ > next_fence(spec_->first_step);
}

// All lanes have come to the fence: the lead makes a checkpoint before any goes on.
void Scheduler::meet_at_fence() {
  if (!is_begun_ || is_saving_ || is_over_) return;
  const bool skips_idle = spec_->consistency == Consistency::kEasgd;
  std::int64_t furthest = 0;
  bool is_met = !workers_.empty();
  for (const Lane& lane : lanes_) {
    furthest = std::max(furthest, lane.next);
    if (skips_idle && lane.owner == 0) continue;
    is_met = is_met && lane.next >= until_;
  }
  if (furthest > until_) {  // a worker had begun a step before it heard
    is_changed_ = true;
    until_ = furthest;
    assign_all();
    return meet_at_fence();
  }
  if (!is_met) return;
  is_changed_ = is_saving_ = true;
  waits_since_ = now_;
  if (const SessionId leads = lead(); leads != 0) send(leads, Save{until_});
}

void Scheduler::take(SessionId session, const Saved& saved) {
  if (session != lead() || !is_saving_ || saved.step != until_) return;
  has_saved_ = true;
  go_on_from_fence();
}

void Scheduler::go_on_from_fence() {
  is_changed_ = true;
  is_saving_ = false;
  waits_since_.reset();
  if (stops_ || until_ >= spec_->num_steps) return end("");
  // A lane that nobody had (easgd) goes on where the others are.
  for (Lane& lane : lanes_) lane.next = std::max(lane.next, until_);
  until_ = next_fence(until_);
  assign_all();
}

void Scheduler::end(const std::string& why) {
  is_changed_ = is_over_ = true;
  end_why_ = why;
  for (const auto& [session, worker] : workers_) send(session, End{why});
  for (const auto& [session, server] : servers_) send(session, End{why});
}

void Scheduler::ticked(double now) {
  now_ = now;
  give_up_absent();
  if (!is_begun_ || is_over_) return;
  if (is_saving_) {
    if (lead() != 0) {
      waits_since_ = now;
    } else if (now - *waits_since_ > patience_.lead_seconds) {
      notices_.push_back(fmt::format(
          "worker 0, which writes checkpoints, is gone: there is none of step {}", until_));
      go_on_from_fence();
    }
    return;
  }
  if (const std::int64_t lost = lost_slices(); lost == 0) {
    waits_since_.reset();
  } else if (!waits_since_) {
    waits_since_ = now;
  } else if (now - *waits_since_ > patience_.server_seconds) {
    const std::string where =
        has_checkpoint()
            ? "the run goes on from its last checkpoint"
            : fmt::format("no checkpoint was written yet, so the run begins at step {}",
                          spec_->first_step);
    end(
        fmt::format("a server is gone with the only copy of {}, and did not come back with it in "
                    "{:.0f} s; start again: {} (sync.replicas=2 keeps a second copy)",
                    counted(lost, "slice"), patience_.server_seconds, where));
  }
}

}  // namespace atl::param_server
