// Carries out the actions of the client's state machine (Member).

#include <algorithm>
#include <map>
#include <utility>
#include <variant>

#include "atoll/base/check.h"
#include "atoll/base/log.h"
#include "atoll/island/client/delta_pieces.h"
#include "atoll/island/client/state.h"
#include "atoll/island/protocol/messages.h"
#include "atoll/island/protocol/trace.h"

namespace atl::island {

using Clock = std::chrono::steady_clock;

// Logs once that the coordinator cannot be reached, and once that it can be again.
void ClientState::tell_of(const PendingEvent& event) {
  if (const auto* said = std::get_if<CoordinatorSaid>(&event.what)) {
    trace("outer step {}: hears message {}", said->message.stamp.outer_step + 1,
          said->message.body.index());
  } else if (const auto* lost = std::get_if<CoordinatorLost>(&event.what)) {
    if (!is_told_of_absence && member->id() == kNobody) {
      log::warning("no coordinator at {} yet: {}; it is tried again for {:.0f} s",
                   options.coordinator, lost->why, options.give_up_after_s);
    }
    is_told_of_absence = true;
  } else if (std::holds_alternative<CoordinatorReached>(event.what)) {
    if (is_told_of_absence) log::info("the coordinator at {} is there", options.coordinator);
    is_told_of_absence = false;
  }
}

void ClientState::connect() {
  connects_at.reset();
  const std::uint64_t number = ++connection;
  const auto tell = [this, number](decltype(MemberEvent::what) what) {
    post(std::move(what), number);
  };
  session = std::make_unique<wire::Session>(
      wire::SessionOptions{
          .address = options.coordinator, .identity = options.identity, .secret = options.secret},
      wire::Session::Events{.connected = [tell] { tell(CoordinatorReached{}); },
                            .received =
                                [this, tell](std::string frame) {
                                  try {
                                    tell(CoordinatorSaid{decode_to_island(frame)});
                                  } catch (const Error& damaged) {
                                    fail(damaged);
                                  }
                                },
                            .disconnected =
                                [this, tell](const std::string& why, bool is_final) {
                                  if (is_final) fail(user_error("{}", why));
                                  tell(CoordinatorLost{why});
                                }});
}

void ClientState::perform(const SendToCoordinator& send) {
  if (!std::holds_alternative<Heartbeat>(send.message.body)) {
    trace("outer step {}: sends message {}", send.message.stamp.outer_step + 1,
          send.message.body.index());
  }
  if (session) session->send(encode(send.message));
}

// The old session is destroyed first: it would reconnect by itself, and the coordinator would have
// two connections of this island.
void ClientState::perform(const Connect& connect_in) {
  session.reset();
  ++connection;
  connects_at = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                   std::chrono::duration<double>(connect_in.after));
}

void ClientState::perform(const StartReduce& start) {
  reducing.request_stop();
  order({.what = RankOrder::What::kStopReduce});
  reducing = std::stop_source();
  reducing_stamp = start.stamp;
  reduce_began = Clock::now();
  give([this, start](const std::stop_token& cancel) { reduce(start, cancel); }, reducing);
}

void ClientState::perform(const StopReduce& stop) {
  if (stop.stamp != reducing_stamp) return;
  reducing.request_stop();
  order({.what = RankOrder::What::kStopReduce});
}

namespace {

// What all ranks measured of each island: their bytes come side by side.
std::vector<LinkMeasurement> together(const std::vector<const ExchangeResult*>& results) {
  std::map<IslandId, LinkMeasurement> all;
  for (const ExchangeResult* result : results) {
    for (const LinkMeasurement& link : result->links) {
      const auto [at, is_new] = all.try_emplace(link.island, link);
      if (is_new) continue;
      at->second.bytes_per_second += link.bytes_per_second;
      at->second.round_trip_seconds =
          std::min(at->second.round_trip_seconds, link.round_trip_seconds);
    }
  }
  std::vector<LinkMeasurement> links;
  for (const auto& [island, link] : all) links.push_back(link);
  return links;
}

}  // namespace

// Each rank makes its part of the outer step.
void ClientState::reduce(const StartReduce& start, const std::stop_token& cancel) {
  if (cancel.stop_requested()) return;
  trace("outer step {}: begins to reduce", start.stamp.outer_step + 1);
  state_fetch.take();  // the island is up to date: pieces of an older fetch are not needed
  const int fragment = start.reduce.fragment;
  if (options.plan.is_gossip && start.reduce.participants.empty()) {  // the state stays as it is
    const auto same = outer.begin_mean_of_states(fragment);
    same->add(0, outer.current(fragment)->values);
    post(ReduceDone{start.stamp, outer.prepare(*same)});
    return;
  }
  IslandId self = kNobody;
  Contacts known;
  {
    const std::lock_guard lock(mutex);
    self = own_id;
    known = contacts;
  }
  const Clock::time_point begun_at = Clock::now();
  const std::uint64_t number = order({.what = RankOrder::What::kReduce,
                                      .stamp = start.stamp,
                                      .reduce = start.reduce,
                                      .self = self,
                                      .contacts = known},
                                     /*wants_answers=*/true);
  // What came after the order that stopped it, it did not stop.
  if (cancel.stop_requested()) order({.what = RankOrder::What::kStopReduce});
  const RankExchange::Reduced own = exchange.reduce(start.stamp, start.reduce, self, known, cancel);
  // The others' parts are in vain then.
  if (!own.exchange.is_done) order({.what = RankOrder::What::kStopReduce});
  const std::vector<RankAnswer> of_others = answers(number);
  if (cancel.stop_requested()) return;
  StateHash hash = own.hash;
  std::vector<double> squares = own.squares;
  std::vector<const ExchangeResult*> results = {&own.exchange};
  for (const RankAnswer& answer : of_others) {
    hash = hash + answer.hash;
    squares.insert(squares.end(), answer.squares.begin(), answer.squares.end());
    results.push_back(&answer.exchange);
  }
  ReduceBroke broke = {.stamp = start.stamp, .unreachable = {}, .why = {}};
  bool is_done = true;
  for (const ExchangeResult* result : results) {
    is_done = is_done && result->is_done;
    broke.unreachable.insert(broke.unreachable.end(), result->unreachable.begin(),
                             result->unreachable.end());
    if (broke.why.empty()) broke.why = result->why;
  }
  if (!is_done) {
    std::sort(broke.unreachable.begin(), broke.unreachable.end());
    broke.unreachable.erase(std::unique(broke.unreachable.begin(), broke.unreachable.end()),
                            broke.unreachable.end());
    post(std::move(broke));
    return;
  }
  outer.seal(hash);
  order({.what = RankOrder::What::kSeal, .hash = hash});
  measured.exchange_seconds = seconds_since(begun_at);
  measured.mean_norm = options.plan.is_gossip ? 0 : norm_of(squares);
  spread = own.spread;
  measured.links = together(results);
  trace("outer step {}: prepared", start.stamp.outer_step + 1);
  post(ReduceDone{start.stamp, hash});
}

void ClientState::perform(const Swap& swap) {
  ATOLL_CHECK(outer.swap(swap.outer_step, swap.fragment, swap.hash),
              "outer step {} was committed and is not beside the state", swap.outer_step);
  order({.what = RankOrder::What::kSwap,
         .outer_step = swap.outer_step,
         .fragment = swap.fragment,
         .hash = swap.hash,
         .was_mine = swap.was_mine && has_errors});
  exchange.publish(swap.fragment);
  if (swap.was_mine && has_errors) {
    give([this, f = swap.fragment](const std::stop_token&) { exchange.accept(f); }, {});
  }
  OuterChange change = {.kind = OuterChange::Kind::kCommitted,
                        .outer_step = swap.outer_step,
                        .fragment = swap.fragment,
                        .contributed = swap.was_mine,
                        .state = outer.current(swap.fragment),
                        .num_participants = static_cast<int>(swap.participants.size()),
                        .exchange_seconds = seconds_since(reduce_began),
                        .spread = swap.was_mine ? spread.load() : 0};
  for (const Participant& participant : swap.participants) change.tokens += participant.tokens;
  push(std::move(change));
}

void ClientState::perform(const FetchState& wanted) {
  fetching.request_stop();
  order({.what = RankOrder::What::kStopFetch});
  fetching = std::stop_source();
  give([this, wanted](const std::stop_token& cancel) { fetch(wanted, cancel); }, fetching);
}

// The worker does one job after the other, so the answer comes after that of the fetch.
void ClientState::perform(const StopFetch&) {
  fetching.request_stop();
  order({.what = RankOrder::What::kStopFetch});
  give([this](const std::stop_token&) { post(FetchStopped{}); }, {});
}

void ClientState::fetch(const FetchState& wanted, const std::stop_token& cancel) {
  Contacts known;
  {
    const std::lock_guard lock(mutex);
    known = contacts;
  }
  const auto fetch_one = [&](int f, const StateHash& hash, std::span<float> values,
                             StateHash& found) {
    const std::uint64_t number = order({.what = RankOrder::What::kFetch,
                                        .fragment = f,
                                        .hash = hash,
                                        .contacts = known,
                                        .sources = wanted.sources},
                                       /*wants_answers=*/true);
    if (cancel.stop_requested()) order({.what = RankOrder::What::kStopFetch});
    ExchangeResult result = exchange.fetch(f, hash, wanted.sources, known, values, cancel);
    found = outer.part(f).hash(values);
    for (RankAnswer& answer : answers(number)) {
      found = found + answer.hash;
      if (result.is_done && !answer.exchange.is_done) result = std::move(answer.exchange);
    }
    return result;
  };
  const ExchangeResult result = state_fetch.fetch(wanted.hashes, outer, fetch_one, cancel);
  if (cancel.stop_requested()) return;
  if (!result.is_done) {
    post(FetchFailed{result.why});
    return;
  }
  for (auto& [fragment, values] : state_fetch.take()) {
    const StateHash& hash = wanted.hashes[static_cast<std::size_t>(fragment)];
    order({.what = RankOrder::What::kReplace,
           .outer_step = wanted.outer_step,
           .fragment = fragment,
           .hash = hash});
    outer.replace(fragment, wanted.outer_step, std::move(values),
                  [&](const StateHash&) { return hash; });
    exchange.publish(fragment);
  }
  order({.what = RankOrder::What::kReplaced, .outer_step = wanted.outer_step});
  outer.set_outer_step(wanted.outer_step);
  post(StateFetched{wanted.outer_step, wanted.hashes});
}

// Runs beside training and exchanges.
void ClientState::perform(const UploadState& wanted) {
  order({.what = RankOrder::What::kUpload, .hashes = wanted.hashes, .connection = connection});
  exchange.upload(wanted.hashes, connection);
}

void ClientState::perform(const Adopt& adopt) {
  push({.kind = OuterChange::Kind::kReplaced,
        .outer_step = adopt.outer_step,
        .drops_work = adopt.drops_work});
}

void ClientState::perform(const StartRound& round) {
  has_begun = true;
  push_news(round);
}

void ClientState::perform(const UseSchedule& use) {
  {
    const std::lock_guard lock(mutex);
    schedules.use(use.outer_step, use.schedule);
  }
  has_errors = has_errors || exchange.codecs().of(use.schedule.codec).wants_error();
  push_news(use);
}

void ClientState::perform(const Halt& halt) {
  if (!halt.is_done) {
    fail(make_error(halt.is_mistake ? ErrorKind::kUser : ErrorKind::kPeer, "{}", halt.why));
    return;
  }
  if (member->outer_step() < member->newest().outer_step) log::warning("{}", halt.why);
  {
    const std::lock_guard lock(mutex);
    is_finished = true;
    ++num_news;
  }
  changed.notify_all();
}

void ClientState::perform(const Part& part) {
  if (!part.why.empty()) log::warning("{}", part.why);
  if (session) session->finish(1000);
  {
    const std::lock_guard lock(mutex);
    has_parted = true;
  }
  changed.notify_all();
}

void ClientState::perform(const Warn& warn) {
  log::warning("{}", warn.text);
}

void ClientState::push(OuterChange change) {
  std::uint64_t sent = exchange.sent_bytes(), received = exchange.received_bytes();
  {
    const std::lock_guard lock(mutex);
    sent += others_sent;
    received += others_received;
  }
  change.sent_bytes = sent - std::exchange(sent_before, sent);
  change.received_bytes = received - std::exchange(received_before, received);
  push_news(std::move(change));
}

void ClientState::push_news(ClientNews one) {
  {
    const std::lock_guard lock(mutex);
    news.push_back(std::make_unique<ClientNews>(std::move(one)));
    ++num_news;
  }
  changed.notify_all();
}

}  // namespace atl::island
