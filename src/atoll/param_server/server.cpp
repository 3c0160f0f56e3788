#include "atoll/param_server/server.h"

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/base/quantity.h"

namespace atl::param_server {

namespace {

ServerTarget to_session(SessionId session) {
  return {ServerTarget::Kind::kSession, session};
}

ServerTarget to_server(ServerId server) {
  return {ServerTarget::Kind::kServer, server};
}

}  // namespace

Server::Server(Stream& stream, std::string address)
    : stream_(stream), address_(std::move(address)) {}

ServerHello Server::hello() const {
  ServerHello hello{.version = kProtocolVersion,
                    .address = address_,
                    .identity = spec_ ? spec_->identity : "",
                    .slices = {},
                    .term = term_,
                    .server = id_,
                    .is_restored = is_restored_};
  for (const auto& [slice, entry] : entries_) {
    if (entry.state && entry.state->is_loaded()) hello.slices.push_back(slice);
  }
  return hello;
}

template <typename T>
void Server::take(SessionId /*session*/, const T& /*other*/) {
  throw damaged_error("a message that a server does not take");
}

void Server::received(SessionId session, const Message& message) {
  std::visit([&](const auto& body) { take(session, body); }, message);
}

void Server::received_from_scheduler(const Message& message) {
  if (const auto* welcome = std::get_if<Welcome>(&message)) {
    take(*welcome);
  } else if (const auto* offer = std::get_if<Offer>(&message)) {
    check_spec(offer->spec);
    if (!spec_) spec_ = offer->spec;
  } else if (const auto* view = std::get_if<View>(&message)) {
    take(*view);
  } else if (const auto* refused = std::get_if<Refused>(&message)) {
    refusal_ = refused->why;
  } else if (std::holds_alternative<End>(message)) {
    is_over_ = true;
  } else {
    throw damaged_error("a message that a scheduler does not send");
  }
}

void Server::take(const Welcome& welcome) {
  if (welcome.term.run == term_.run && welcome.term.epoch < term_.epoch) {
    refusal_ = fmt::format(
        "the scheduler is of epoch {}, and one of epoch {} was there before: two of them run; end "
        "the older one, and start this server again",
        welcome.term.epoch, term_.epoch);
    return;
  }
  if (term_.run != 0 && welcome.term.run != term_.run && !is_restored_) forget_run();
  term_ = welcome.term;
  id_ = welcome.server;
  is_restored_ = false;
  tell_ready();
}

// A scheduler that knows nothing of the run begins another: its views count anew, and the lead
// gives all slices their state.
void Server::forget_run() {
  spec_.reset();
  view_ = {};
  entries_.clear();
  clocks_.clear();
  early_.clear();
}

// The scheduler may not have heard that a copy is complete.
void Server::tell_ready() {
  for (const auto& [slice, entry] : entries_) {
    if (!entry.is_head || slice >= view_.joining.size()) continue;
    const auto follower = entry.followers.find(view_.joining[slice]);
    if (follower == entry.followers.end() || !follower->second.is_waited_for) continue;
    sends_.push_back({{ServerTarget::Kind::kScheduler, 0}, Ready{slice, follower->first}});
  }
}

void Server::take(const View& view) {
  if (!spec_ || view.number <= view_.number) return;
  if (view.chains.size() != spec_->slices.size() || view.joining.size() != view.chains.size()) {
    throw damaged_error("a view of {} slices, and there are {}", view.chains.size(),
                        spec_->slices.size());
  }
  const std::vector<ServerId> was_joining = std::exchange(view_, view).joining;
  for (std::uint32_t slice = 0; slice < view_.chains.size(); ++slice) {
    const std::vector<ServerId>& chain = view_.chains[slice];
    const bool is_member = std::find(chain.begin(), chain.end(), id_) != chain.end();
    auto at = entries_.find(slice);
    if (!is_member) {
      // A copy that has come is kept while this server joins. Anything else here is older than
      // what others have, also where a head leaves the chain and joins it in one view; but where
      // nobody has the slice it may be asked for yet.
      const bool is_joining =
          view_.joining[slice] == id_ && slice < was_joining.size() && was_joining[slice] == id_;
      if (at == entries_.end() || is_joining || chain.empty()) continue;
      for (const WaitingPull& waiting : at->second.pulls) {
        sends_.push_back({to_session(waiting.session), NotHead{slice}});
      }
      entries_.erase(at);
      continue;
    }
    const bool is_new = at == entries_.end();
    if (is_new) {
      at = entries_.try_emplace(slice).first;
      at->second.state = std::make_unique<SliceState>(context(), slice);
    }
    take_role(slice, at->second, is_new);
  }
  take_early();
}

// A head may know a newer view than this server, and sends a copy once: what it sends is kept until
// the view comes. Taken at once, a server that is head in its older view would drop the copy, and
// the older view that is on its way would erase it.
template <typename T>
bool Server::is_early(SessionId session, const T& message) {
  if (message.view <= view_.number) return false;
  early_.emplace_back(session, message);
  return true;
}

void Server::take_early() {
  for (const auto& [session, message] : std::exchange(early_, {})) received(session, message);
}

void Server::take_role(std::uint32_t slice, Entry& entry, bool is_new) {
  const std::vector<ServerId>& chain = view_.chains[slice];
  const bool was_head = entry.is_head;
  entry.is_head = chain.front() == id_;
  if (!entry.is_head) {
    entry.followers.clear();
    entry.held.clear();
    for (const WaitingPull& waiting : entry.pulls) {
      sends_.push_back({to_session(waiting.session), NotHead{slice}});
    }
    entry.pulls.clear();
    entry.sums.clear();
    return;
  }
  std::map<ServerId, Follower> followers;
  const auto keep = [&](ServerId server, bool is_member) {
    const auto before = entry.followers.find(server);
    Follower follower = before == entry.followers.end() ? Follower() : before->second;
    if (is_member) follower.is_waited_for = true;
    // All that are there when a run begins have nothing, and need no copy of it.
    if (is_new && !entry.state->is_loaded()) follower.has_copy = true;
    followers[server] = follower;
  };
  for (const ServerId server : chain) {
    if (server != id_) keep(server, /*is_member=*/true);
  }
  if (view_.joining[slice] != kNobody) keep(view_.joining[slice], /*is_member=*/false);
  entry.followers = std::move(followers);
  // Who becomes the head goes by what it has itself.
  if (!was_head && !is_new) {
    for (auto& [server, follower] : entry.followers) {
      follower = {.acknowledged = 0, .is_waited_for = follower.is_waited_for, .has_copy = false};
    }
  }
  for (auto& [server, follower] : entry.followers) {
    if (!follower.has_copy) copy_to(slice, entry, server);
  }
  note_clocks(slice, entry);
  release(entry);
}

void Server::copy_to(std::uint32_t slice, Entry& entry, ServerId server) {
  entry.followers[server].has_copy = true;
  sends_.push_back({to_server(server), Copy{.slice = slice,
                                            .view = view_.number,
                                            .sequence = entry.sequence,
                                            .state = entry.state->encode()}});
}

void Server::connected(ServerId server) {
  for (auto& [slice, entry] : entries_) {
    const auto at = entry.followers.find(server);
    if (at == entry.followers.end()) continue;
    // What was on its way when the link broke may be lost.
    if (at->second.acknowledged == entry.sequence && at->second.is_waited_for) continue;
    copy_to(slice, entry, server);
  }
}

// The events of a slice; Pull: an update, and what a lane computes with.
void Server::apply(SliceState& state, const Message& event) {
  if (const auto* push = std::get_if<Push>(&event)) {
    state.push(*push);
  } else if (const auto* load = std::get_if<Load>(&event)) {
    state.load(*load);
  } else if (const auto* pull = std::get_if<Pull>(&event)) {
    if (pull->update.is_given) {
      if (state.can_update(pull->step - 1)) state.update(pull->step - 1, pull->update);
    } else {
      state.mark_pulled(pull->lane);
    }
  } else {
    throw damaged_error("a message that is no event of a slice");
  }
}

// The head's way to change a slice.
void Server::change(std::uint32_t slice, Entry& entry, const Message& event) {
  apply(*entry.state, event);
  ++entry.sequence;
  entry.is_changed = true;
  if (entry.followers.empty()) return;
  const std::string bytes = encode(event);
  for (const auto& [server, follower] : entry.followers) {
    sends_.push_back(
        {to_server(server),
         Replicate{
             .slice = slice, .view = view_.number, .sequence = entry.sequence, .event = bytes}});
  }
}

void Server::reply(Entry& entry, SessionId session, Message message) {
  entry.held.push_back({entry.sequence, {to_session(session), std::move(message)}});
  release(entry);
}

// Answers that nothing can take back any more.
void Server::release(Entry& entry) {
  if (entry.is_unwritten) return;
  std::uint64_t safe = entry.sequence;
  for (const auto& [server, follower] : entry.followers) {
    if (follower.is_waited_for) safe = std::min(safe, follower.acknowledged);
  }
  while (!entry.held.empty() && entry.held.front().sequence <= safe) {
    sends_.push_back(std::move(entry.held.front().send));
    entry.held.pop_front();
  }
}

Server::Entry* Server::headed(SessionId session, std::uint32_t slice, bool loads) {
  const auto at = entries_.find(slice);
  if (at != entries_.end() && at->second.is_head && (loads || at->second.state->is_loaded())) {
    return &at->second;
  }
  sends_.push_back({to_session(session), NotHead{slice}});
  return nullptr;
}

void Server::check_lane(std::int64_t lane) const {
  if (lane >= 0 && lane < spec_->num_lanes) return;
  throw damaged_error("lane {} of {}", lane, spec_->num_lanes);
}

// A server that came back from its disk lacks what was acknowledged after its last write.
void Server::note_lost(std::uint32_t slice, Entry& entry, std::int64_t lane, std::int64_t step) {
  const std::int64_t lost = entry.state->skip_lost(lane, step);
  if (lost == 0) return;
  say_lost(slice, entry, lost, step);
  answer_waiting(slice, entry);
}

void Server::say_lost(std::uint32_t slice, Entry& entry, std::int64_t lost, std::int64_t step) {
  lost_pushes_ += lost;
  notices_.push_back(
      fmt::format("slice {}: {} lost, up to step {}: acknowledged after the last "
                  "write to this server's disk",
                  slice, counted(lost, "push", "pushes"), step));
  ++entry.sequence;
  entry.is_changed = true;
  for (const auto& [server, follower] : entry.followers) copy_to(slice, entry, server);
}

// Of a lane that has come to the end of its steps for now nothing else is heard. An update that can
// still be made is: whoever waits for it makes it.
void Server::note_clocks(std::uint32_t slice, Entry& entry) {
  for (const auto& [lane, step] : clocks_) {
    if (!entry.state->can_update(step - 1)) note_lost(slice, entry, lane, step);
  }
}

void Server::take(SessionId session, const Clocks& clocks) {
  if (!spec_) {
    early_.emplace_back(session, clocks);
    return;
  }
  if (spec_->consistency == Consistency::kEasgd) return;  // slices have clocks of their own
  for (const LaneAt& at : clocks.lanes) {
    check_lane(at.lane);
    if (at.step > spec_->num_steps) {
      throw damaged_error("step {} of lane {}, and the run has {}", at.step, at.lane,
                          spec_->num_steps);
    }
    clocks_[at.lane] = std::max(clocks_[at.lane], at.step);
  }
  for (auto& [slice, entry] : entries_) {
    if (entry.is_head) note_clocks(slice, entry);
  }
}

void Server::take(SessionId session, const Push& push) {
  Entry* entry = headed(session, push.slice);
  if (entry == nullptr) return;
  check_lane(push.lane);
  note_lost(push.slice, *entry, push.lane, push.step);
  switch (entry->state->outcome_of(push)) {
    case SliceState::Outcome::kTaken:
      change(push.slice, *entry, push);
      break;
    case SliceState::Outcome::kDuplicate:
      break;
    case SliceState::Outcome::kAhead:
      throw damaged_error("slice {}: a push of step {} of lane {}, and it waits for one of step {}",
                          push.slice, push.step, push.lane, entry->state->waits_for(push.lane));
  }
  reply(*entry, session,
        Pushed{.slice = push.slice, .lane = push.lane, .next = entry->state->next(push.lane)});
  answer_waiting(push.slice, *entry);
}

void Server::take(SessionId session, const Pull& pull) {
  Entry* entry = headed(session, pull.slice);
  if (entry == nullptr) return;
  check_lane(pull.lane);
  if (pull.update.is_given && entry->state->can_update(pull.step - 1)) {
    change(pull.slice, *entry, pull);
    answer_waiting(pull.slice, *entry);
  }
  note_lost(pull.slice, *entry, pull.lane, pull.step);
  if (answer(pull.slice, *entry, session, pull)) return;
  std::erase_if(entry->pulls,
                [&](const WaitingPull& waiting) { return waiting.session == session; });
  entry->pulls.push_back({session, pull});
}

bool Server::answer(std::uint32_t slice, Entry& entry, SessionId session, const Pull& pull) {
  if (!entry.state->can_answer(pull)) return false;
  if (spec_->compensation != 0) {
    Pull mark = pull;
    mark.update = {};
    change(slice, entry, mark);
  }
  reply(entry, session, entry.state->values(pull));
  return true;
}

void Server::answer_waiting(std::uint32_t slice, Entry& entry) {
  std::erase_if(entry.sums, [&](const WaitingSum& waiting) {
    if (entry.state->is_past(waiting.step)) {
      reply(entry, waiting.session,
            Sum{.slice = slice, .step = waiting.step, .squares = {}, .losses = {}});
      return true;
    }
    if (!entry.state->has_sum(waiting.step)) return false;
    reply(entry, waiting.session, entry.state->sum(waiting.step));
    return true;
  });
  std::erase_if(entry.pulls, [&](const WaitingPull& waiting) {
    return answer(slice, entry, waiting.session, waiting.pull);
  });
}

void Server::take(SessionId session, const AwaitSum& await) {
  Entry* entry = headed(session, await.slice);
  if (entry == nullptr) return;
  std::int64_t lost = 0;
  for (const std::int64_t lane : await.lanes) {
    check_lane(lane);
    lost += entry->state->lose_contribution(lane, await.step);
  }
  if (lost > 0) say_lost(await.slice, *entry, lost, await.step);
  entry->sums.push_back({session, await.step});
  answer_waiting(await.slice, *entry);
}

void Server::take(SessionId session, const Load& load) {
  Entry* entry = headed(session, load.slice, /*loads=*/true);
  if (entry == nullptr) return;
  change(load.slice, *entry, load);
  entry->is_unwritten = keeps_on_disk_;
  reply(*entry, session, LoadedSlice{load.slice});
}

void Server::take(SessionId session, const Read& read) {
  Entry* entry = headed(session, read.slice);
  if (entry == nullptr) return;
  // What a checkpoint lacks is said when it is made; it may be the last one.
  if (spec_->consistency != Consistency::kEasgd) {
    for (std::int64_t lane = 0; lane < spec_->num_lanes; ++lane) {
      note_lost(read.slice, *entry, lane, read.step);
    }
  }
  reply(*entry, session, entry->state->state());
}

void Server::take(SessionId session, const Replicate& replicate) {
  if (is_early(session, replicate)) return;
  const auto at = entries_.find(replicate.slice);
  if (at == entries_.end()) return;  // a copy comes when the head hears of this server
  Entry& entry = at->second;
  if (entry.is_head || replicate.view < entry.head_view) return;
  if (replicate.sequence != entry.sequence + 1) return;
  entry.head_view = replicate.view;
  apply(*entry.state, decode(replicate.event));
  entry.sequence = replicate.sequence;
  entry.is_changed = true;
  acknowledge(replicate.slice, entry, session);
}

void Server::acknowledge(std::uint32_t slice, Entry& entry, SessionId session) {
  entry.acknowledges_to = session;
  if (entry.is_unwritten) return;
  sends_.push_back(
      {to_session(session),
       Replicated{.slice = slice, .view = entry.head_view, .sequence = entry.sequence}});
}

void Server::take(SessionId session, const Copy& copy) {
  if (is_early(session, copy) || !spec_ || copy.slice >= spec_->slices.size()) return;
  auto at = entries_.find(copy.slice);
  if (at != entries_.end() && (at->second.is_head || copy.view < at->second.head_view)) return;
  if (at == entries_.end()) at = entries_.try_emplace(copy.slice).first;
  Entry& entry = at->second;
  entry.state = std::make_unique<SliceState>(context(), copy.slice);
  entry.state->decode(copy.state);
  entry.sequence = copy.sequence;
  entry.head_view = copy.view;
  entry.is_changed = true;
  entry.is_unwritten = keeps_on_disk_;
  acknowledge(copy.slice, entry, session);
}

void Server::received_from_server(ServerId server, const Message& message) {
  const auto* done = std::get_if<Replicated>(&message);
  if (done == nullptr) throw damaged_error("a message that a follower does not send");
  const auto at = entries_.find(done->slice);
  if (at == entries_.end() || !at->second.is_head) return;
  Entry& entry = at->second;
  const auto follower = entry.followers.find(server);
  if (follower == entry.followers.end()) return;
  follower->second.acknowledged = std::max(follower->second.acknowledged, done->sequence);
  if (!follower->second.is_waited_for && follower->second.acknowledged == entry.sequence) {
    // From here on nothing is answered that it does not have, so it may stand in for this one.
    follower->second.is_waited_for = true;
    sends_.push_back({{ServerTarget::Kind::kScheduler, 0}, Ready{done->slice, server}});
  }
  release(entry);
}

void Server::closed(SessionId session) {
  std::erase_if(early_, [&](const auto& early) { return early.first == session; });
  for (auto& [slice, entry] : entries_) {
    if (entry.acknowledges_to == session) entry.acknowledges_to = 0;
    std::erase_if(entry.held, [&](const Held& held) { return held.send.to.id == session; });
    std::erase_if(entry.pulls, [&](const auto& waiting) { return waiting.session == session; });
    std::erase_if(entry.sums, [&](const auto& waiting) { return waiting.session == session; });
  }
}

std::vector<std::pair<std::uint32_t, std::string>> Server::take_changed() {
  std::vector<std::pair<std::uint32_t, std::string>> changed;
  for (auto& [slice, entry] : entries_) {
    if (!std::exchange(entry.is_changed, false)) continue;
    changed.emplace_back(slice, entry.state->encode());
  }
  return changed;
}

bool Server::waits_for_disk() const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [](const auto& entry) { return entry.second.is_unwritten; });
}

void Server::written() {
  for (auto& [slice, entry] : entries_) {
    if (entry.is_changed || !std::exchange(entry.is_unwritten, false)) continue;
    if (entry.is_head) {
      release(entry);
    } else if (entry.acknowledges_to != 0) {
      acknowledge(slice, entry, entry.acknowledges_to);
    }
  }
}

void Server::restore(const RunSpec& spec,
                     const std::vector<std::pair<std::uint32_t, std::string>>& slices) {
  spec_ = spec;
  for (const auto& [slice, bytes] : slices) {
    Entry& entry = entries_[slice];
    entry.state = std::make_unique<SliceState>(context(), slice);
    entry.state->decode(bytes);
    entry.state->set_restored();
  }
}

void Server::restore_name(const Term& term, ServerId id) {
  term_ = term;
  id_ = id;
  is_restored_ = true;
}

const SliceState* Server::slice(std::uint32_t number) const {
  const auto at = entries_.find(number);
  return at == entries_.end() ? nullptr : at->second.state.get();
}

std::int64_t Server::num_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& [slice, entry] : entries_) {
    bytes += static_cast<std::int64_t>(Spec{spec_->dtype, {spec_->slices[slice].count}}.bytes());
  }
  return bytes;
}

}  // namespace atl::param_server
