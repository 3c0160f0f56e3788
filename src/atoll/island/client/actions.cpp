// Carries out the actions of the client's state machine (Member).

#include <algorithm>
#include <utility>
#include <variant>

#include "atoll/base/check.h"
#include "atoll/base/log.h"
#include "atoll/island/client/state.h"
#include "atoll/island/protocol/messages.h"
#include "atoll/island/protocol/trace.h"

namespace atl::island {

using Clock = std::chrono::steady_clock;

// Logs once that the coordinator cannot be reached, and once that it can be again.
void Client::State::tell_of(const PendingEvent& event) {
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

void Client::State::connect() {
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

void Client::State::perform(const SendToCoordinator& send) {
  if (!std::holds_alternative<Heartbeat>(send.message.body)) {
    trace("outer step {}: sends message {}", send.message.stamp.outer_step + 1,
          send.message.body.index());
  }
  if (session) session->send(encode(send.message));
}

// The old session is destroyed first: it would reconnect by itself, and the coordinator would have
// two connections of this island.
void Client::State::perform(const Connect& connect_in) {
  session.reset();
  ++connection;
  connects_at = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                   std::chrono::duration<double>(connect_in.after));
}

void Client::State::perform(const StartReduce& start) {
  reducing.request_stop();
  reducing = std::stop_source();
  reducing_stamp = start.stamp;
  reduce_began = Clock::now();
  give([this, start](const std::stop_token& cancel) { reduce(start, cancel); }, reducing);
}

void Client::State::perform(const StopReduce& stop) {
  if (stop.stamp == reducing_stamp) reducing.request_stop();
}

// Makes the outer step piece by piece, while the rest of the mean arrives.
void Client::State::reduce(const StartReduce& start, const std::stop_token& cancel) {
  trace("outer step {}: begins to reduce", start.stamp.outer_step + 1);
  state_fetch.take();  // the island is up to date: pieces of an older fetch are not needed
  mean.resize(outer.elements(start.reduce.fragment));
  IslandId self = kNobody;
  Contacts known;
  {
    const std::lock_guard lock(mutex);
    self = own_id;
    known = contacts;
  }
  std::once_flag begun;
  std::unique_ptr<OuterState::Step> step;
  const auto add = [&](std::size_t first, std::span<const float> part) {
    std::call_once(begun, [&] {
      step = outer.begin_step(
          start.reduce.fragment,
          {.lr = start.reduce.schedule.outer_lr,
           .arrivals = start.reduce.arrivals,
           .contributions = static_cast<std::int64_t>(start.reduce.participants.size())});
    });
    step->add(first, part);
  };
  const Clock::time_point begun_at = Clock::now();
  const ExchangeResult result =
      exchange->reduce(start.stamp, start.reduce, self, known, mean, cancel, add);
  trace("outer step {}: has the mean", start.stamp.outer_step + 1);
  if (cancel.stop_requested()) return;
  if (!result.is_done) {
    post(ReduceBroke{start.stamp, result.unreachable, result.why});
    return;
  }
  const StateHash hash = outer.prepare(*step);
  measured.exchange_seconds = seconds_since(begun_at);
  measured.mean_norm = norm_of(mean);
  measured.links = result.links;
  trace("outer step {}: prepared", start.stamp.outer_step + 1);
  post(ReduceDone{start.stamp, hash});
}

void Client::State::perform(const Swap& swap) {
  ATOLL_CHECK(outer.swap(swap.outer_step, swap.fragment, swap.hash),
              "outer step {} was committed and is not beside the state", swap.outer_step);
  publish(swap.fragment);
  const auto at = static_cast<std::size_t>(swap.fragment);
  if (swap.was_mine && has_errors) {
    give(
        [this, at](const std::stop_token&) {
          const std::lock_guard lock(mutex);
          error[at] = error_next[at];
        },
        {});
  }
  OuterChange change = {.kind = OuterChange::Kind::kCommitted,
                        .outer_step = swap.outer_step,
                        .fragment = swap.fragment,
                        .contributed = swap.was_mine,
                        .state = outer.current(swap.fragment),
                        .num_participants = static_cast<int>(swap.participants.size()),
                        .exchange_seconds = seconds_since(reduce_began)};
  for (const Participant& participant : swap.participants) change.tokens += participant.tokens;
  push(std::move(change));
}

void Client::State::perform(const FetchState& wanted) {
  fetching.request_stop();
  fetching = std::stop_source();
  give([this, wanted](const std::stop_token& cancel) { fetch(wanted, cancel); }, fetching);
}

void Client::State::fetch(const FetchState& wanted, const std::stop_token& cancel) {
  Contacts known;
  {
    const std::lock_guard lock(mutex);
    known = contacts;
  }
  const auto fetch_one = [&](const StateHash& hash, std::span<float> values) {
    return exchange->fetch_state(hash, wanted.sources, known, values, cancel);
  };
  const ExchangeResult result = state_fetch.fetch(wanted.hashes, outer, fetch_one, cancel);
  if (cancel.stop_requested()) return;
  if (!result.is_done) {
    post(FetchFailed{result.why});
    return;
  }
  for (auto& [fragment, values] : state_fetch.take()) {
    outer.replace(fragment, wanted.outer_step, std::move(values));
    publish(fragment);
  }
  outer.set_outer_step(wanted.outer_step);
  post(StateFetched{wanted.outer_step, wanted.hashes});
}

// Runs beside training and exchanges. An upload that is under way is stopped: it is of an older
// state or for another island. An interrupted fragment continues where it stopped.
void Client::State::perform(const UploadState& wanted) {
  std::vector<std::shared_ptr<const FragmentState>> fragments;
  for (int f = 0; f < outer.num_fragments(); ++f) {
    auto fragment = outer.current(f);
    if (fragment && fragment->hash == wanted.hashes[f]) fragments.push_back(std::move(fragment));
  }
  uploading = {};
  if (std::exchange(uploaded_on, connection) != connection) uploaded.clear();
  uploading = std::jthread([this, fragments](const std::stop_token& cancel) {
    for (const auto& fragment : fragments) {
      if (!cancel.stop_requested()) upload(*fragment, cancel);
    }
  });
}

void Client::State::upload(const FragmentState& fragment, const std::stop_token& cancel) {
  const std::string key = state_key(fragment.hash);
  std::string why;
  try {
    const ExchangeResult result =
        exchange->put_state(fragment.hash, fragment.values, uploaded[key], cancel);
    if (!result.is_done && cancel.stop_requested()) return;
    if (!result.is_done) why = result.why;
  } catch (const std::exception& error) {  // no memory, no thread, an identity that was removed
    why = error.what();
  }
  uploaded.erase(key);
  if (why.empty()) return;
  log::warning("state for an island that reaches nobody else could not be put: {}", why);
}

void Client::State::perform(const Adopt& adopt) {
  push({.kind = OuterChange::Kind::kReplaced,
        .outer_step = adopt.outer_step,
        .drops_work = adopt.drops_work});
}

void Client::State::perform(const StartRound& round) {
  has_begun = true;
  push_news(round);
}

void Client::State::perform(const UseSchedule& use) {
  {
    const std::lock_guard lock(mutex);
    schedules.use(use.outer_step, use.schedule);
  }
  has_errors = has_errors || codecs.of(use.schedule.codec).wants_error();
  push_news(use);
}

void Client::State::perform(const Halt& halt) {
  if (!halt.is_done) {
    fail(make_error(halt.is_mistake ? ErrorKind::kUser : ErrorKind::kPeer, "{}", halt.why));
    return;
  }
  if (member->outer_step() < member->newest().outer_step) log::warning("{}", halt.why);
  if (session) session->finish(1000);
  {
    const std::lock_guard lock(mutex);
    is_finished = true;
    ++num_news;
  }
  changed.notify_all();
}

void Client::State::perform(const Warn& warn) {
  log::warning("{}", warn.text);
}

void Client::State::push(OuterChange change) {
  // Others fetch from this island's server; what goes through the coordinator is put there.
  std::uint64_t sent = exchange->traffic().sent_bytes;
  if (server) sent += server->traffic().sent_bytes;
  const std::uint64_t received = exchange->traffic().received_bytes;
  change.sent_bytes = sent - std::exchange(sent_before, sent);
  change.received_bytes = received - std::exchange(received_before, received);
  push_news(std::move(change));
}

void Client::State::push_news(ClientNews one) {
  {
    const std::lock_guard lock(mutex);
    news.push_back(std::make_unique<ClientNews>(std::move(one)));
    ++num_news;
  }
  changed.notify_all();
}

void Client::State::publish(int fragment) {
  const auto state = outer.current(fragment);
  if (state) exchange->publish_state(fragment, state->hash, state->values, state);
}

}  // namespace atl::island
