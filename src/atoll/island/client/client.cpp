#include "atoll/island/client/client.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "atoll/base/log.h"
#include "atoll/island/client/delta_pieces.h"
#include "atoll/island/client/state.h"
#include "atoll/island/protocol/trace.h"

namespace atl::island {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kTick{50};

MemberStart start_of(const OuterState& state, std::vector<BatchRange> holds, bool in_round) {
  return {.outer_step = state.outer_step(),
          .hashes = state.hashes(),
          .holds = std::move(holds),
          .in_round = in_round};
}

std::vector<std::uint64_t> state_sizes(const OuterState& state) {
  std::vector<std::uint64_t> sizes;
  for (int f = 0; f < state.num_fragments(); ++f) {
    sizes.push_back(state.part(f).bytes());
  }
  return sizes;
}

}  // namespace

ClientState::ClientState(const ClientOptions& given, OuterState& state, RankExchange& rank_exchange,
                         OtherRanks* other_ranks, std::vector<BatchRange> holds, bool in_round)
    : options(given), outer(state), exchange(rank_exchange), others(other_ranks) {
  RunPlan plan = options.plan;
  plan.state_sizes = state_sizes(outer);
  has_begun = outer.outer_step() > 0;
  has_errors = exchange.codecs().of("").wants_error();
  for (int f = 0; f < outer.num_fragments(); ++f) {
    has_errors = has_errors || !exchange.codec_error(f).empty();
  }
  member.emplace(MemberOptions{.name = options.name,
                               .identity = options.run,
                               .plan = plan,
                               .address = options.address,
                               .relay_token = exchange.relay_token(),
                               .peer_token = exchange.peer_token(),
                               .give_up_after = options.give_up_after_s,
                               .has_final_state = options.has_final_model},
                 start_of(outer, std::move(holds), in_round));
  connects_at = Clock::now();
  machine = std::thread([this] { run_machine(); });
  worker = std::thread([this] { run_worker(); });
}

ClientState::~ClientState() {
  {
    const std::lock_guard lock(mutex);
    is_stopping = true;
    for (auto& [job, cancel] : jobs) cancel.request_stop();
  }
  changed.notify_all();
  machine.join();
  exchange.stop_upload();
  reducing.request_stop();
  fetching.request_stop();
  order({.what = RankOrder::What::kStopReduce});
  order({.what = RankOrder::What::kStopFetch});
  if (others != nullptr) others->give_up();
  worker.join();
  session.reset();
}

void ClientState::post(decltype(MemberEvent::what) what, std::uint64_t of_connection) {
  {
    const std::lock_guard lock(mutex);
    events.push_back({std::move(what), of_connection});
  }
  changed.notify_all();
}

void ClientState::fail(const Error& error_of) {
  {
    const std::lock_guard lock(mutex);
    if (!fatal) fatal = error_of;
  }
  changed.notify_all();
}

void ClientState::run_machine() {
  try {
    Clock::time_point tick = Clock::now();
    for (;;) {
      std::deque<PendingEvent> batch;
      {
        std::unique_lock lock(mutex);
        changed.wait_until(lock, tick, [&] { return is_stopping || !events.empty(); });
        if (is_stopping) return;
        std::swap(batch, events);
      }
      if (connects_at && Clock::now() >= *connects_at) connect();
      if (Clock::now() >= tick) {
        batch.push_back({MemberTicked{exchange.heard().take()}});
        tick = Clock::now() + kTick;
      }
      for (PendingEvent& event : batch) {
        // Events of a connection that was given up meanwhile are dropped.
        if (event.connection != 0 && event.connection != connection) continue;
        tell_of(event);
        const auto actions = member->handle({now(), std::move(event.what)});
        note_members();  // what is wanted may need the names
        for (const MemberAction& action : actions) {
          std::visit([this](const auto& wanted) { perform(wanted); }, action);
        }
      }
    }
  } catch (const Error& broken) {
    fail(broken);
  } catch (const std::exception& broken) {
    fail(Error(ErrorKind::kInternal, broken.what()));
  }
}

void ClientState::run_worker() {
  for (;;) {
    std::pair<Job, std::stop_source> next;
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return is_stopping || !jobs.empty(); });
      if (is_stopping) return;
      next = std::move(jobs.front());
      jobs.pop_front();
    }
    try {
      next.first(next.second.get_token());
    } catch (const Error& broken) {
      fail(broken);
    } catch (const std::exception& broken) {
      fail(Error(ErrorKind::kInternal, broken.what()));
    }
  }
}

void ClientState::give(Job job, std::stop_source cancel) {
  {
    const std::lock_guard lock(mutex);
    jobs.emplace_back(std::move(job), std::move(cancel));
  }
  changed.notify_all();
}

void ClientState::note_members() {
  const bool is_known = own_id == member->id() && member->view() == noted;
  if (is_known) return;
  noted = member->view();
  const auto active = std::count_if(noted.members.begin(), noted.members.end(),
                                    [](const auto& one) { return one.state == "active"; });
  // A View that names only this island's sources does not tell the number of islands.
  const bool is_of_all = std::any_of(noted.members.begin(), noted.members.end(),
                                     [&](const auto& one) { return one.island == member->id(); });
  const int wanted = options.plan.min_islands;
  has_begun |= member->newest().outer_step > 0;
  if (!has_begun && is_of_all && active < wanted) {
    log::info("{} of {} islands are there; training begins with all of them", active, wanted);
  }
  const std::lock_guard lock(mutex);
  num_active = std::max(1, static_cast<int>(active));
  own_id = member->id();
  for (const View::MemberInfo& one : noted.members) {
    contacts[one.island] = {options.identity ? one.name : "", one.peer_token};
  }
}

double ClientState::seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// ---- what the trainer hands in ----

std::string ClientState::codec_of(std::int64_t outer_step) const {
  const std::lock_guard lock(mutex);
  const RoundSchedule* schedule = schedules.of(outer_step);
  return schedule == nullptr ? exchange.codecs().base() : schedule->codec;
}

std::uint64_t ClientState::order(const RankOrder& order, bool wants_answers) {
  return others == nullptr ? 0 : others->send(encode(order), wants_answers);
}

// Of the other ranks, in their order.
std::vector<RankAnswer> ClientState::answers(std::uint64_t number) {
  std::vector<RankAnswer> all;
  if (others == nullptr) return all;
  std::uint64_t sent = 0, received = 0;
  for (const std::string& one : others->answers(number)) {
    all.push_back(decode_answer(one));
    if (!all.back().error.empty()) {
      throw make_error(ErrorKind::kPeer, "rank {} of this island cannot exchange its part: {}",
                       all.size(), all.back().error);
    }
    sent += all.back().sent_bytes;
    received += all.back().received_bytes;
  }
  const std::lock_guard lock(mutex);
  others_sent = sent;
  others_received = received;
  return all;
}

// The coordinator is told first: the delta is encoded while the coordinator decides.
void ClientState::offer(const Contribution& contribution, std::uint64_t adopted) {
  const std::string codec_name = codec_of(contribution.outer_step);
  const compress::Codec& codec = exchange.codecs().of(codec_name);
  const std::uint64_t number = order({.what = RankOrder::What::kOffer,
                                      .outer_step = contribution.outer_step,
                                      .fragment = contribution.fragment,
                                      .codec = codec_name},
                                     /*wants_answers=*/true);
  using Offers = RankExchange::Offers;
  const Offers offers = !options.plan.is_gossip         ? Offers::kPseudoGradient
                        : contribution.consumed.empty() ? Offers::kState
                                                        : Offers::kNextState;
  std::vector<double> squares = exchange.offer(contribution.outer_step, contribution.fragment,
                                               codec_name, contribution.delta, offers);
  for (const RankAnswer& answer : answers(number)) {
    squares.insert(squares.end(), answer.squares.begin(), answer.squares.end());
  }
  Ready ready = {.base_hash = contribution.base_hash,
                 .tokens = contribution.tokens,
                 .consumed = contribution.consumed,
                 .norm = norm_of(squares),
                 .loss = contribution.loss,
                 .codec = codec_name,
                 .measured = measured};
  ready.measured.step_seconds = contribution.step_seconds;
  ready.measured.learning_rate = contribution.learning_rate;
  ready.is_finite = std::isfinite(ready.norm);
  if (ready.is_finite) {
    const std::int64_t elements = outer.part(contribution.fragment).elements();
    ready.encoded_bytes = encoded_bytes(codec, elements);
    ready.chunk_bytes = codec.max_bytes(piece_size(elements));
  }
  post(RoundDone{.num_adopted = adopted, .outer_step = contribution.outer_step, .ready = ready});
  const double rate = exchange.encode();
  if (rate > 0) measured.codec_bytes_per_second = rate * exchange.place().num_ranks;
  trace("outer step {}: encoded", contribution.outer_step + 1);
}

Client::Client(const ClientOptions& options, OuterState& state, RankExchange& exchange,
               OtherRanks* others, std::vector<BatchRange> holds, bool in_round)
    : state_(std::make_unique<ClientState>(options, state, exchange, others, std::move(holds),
                                           in_round)) {}

Client::~Client() = default;

std::unique_ptr<ClientNews> Client::next_news() {
  const std::lock_guard lock(state_->mutex);
  if (state_->fatal) throw Error(*state_->fatal);
  if (state_->news.empty()) return nullptr;
  std::unique_ptr<ClientNews> one = std::move(state_->news.front());
  state_->news.pop_front();
  const auto* change = std::get_if<OuterChange>(one.get());
  if (change != nullptr && change->drops_work) ++state_->num_adopted;
  return one;
}

void Client::hand_in(Contribution contribution) {
  std::uint64_t adopted = 0;
  {
    const std::lock_guard lock(state_->mutex);
    adopted = state_->num_adopted;
  }
  ClientState* const state = state_.get();
  state->give([state, adopted, contribution = std::move(contribution)](
                  const std::stop_token&) { state->offer(contribution, adopted); },
              {});
}

void Client::tell_speed(std::int64_t inner_steps, double batches_per_second) {
  state_->post(Progress{inner_steps, batches_per_second});
}

void Client::wait() {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_for(lock, std::chrono::milliseconds(100), [this] {
    return state_->fatal || state_->num_news != state_->seen_news;
  });
  state_->seen_news = state_->num_news;
}

bool Client::is_finished() {
  const std::lock_guard lock(state_->mutex);
  if (state_->fatal) throw Error(*state_->fatal);
  return state_->is_finished && state_->news.empty();
}

int Client::num_active() {
  const std::lock_guard lock(state_->mutex);
  return state_->num_active;
}

void Client::leave(const std::string& why) {
  state_->post(LeaveWanted{why});
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_for(lock, std::chrono::seconds(3),
                           [this] { return state_->fatal || state_->is_finished; });
}

void Client::tell_saved() {
  state_->post(LeaveWanted{"it has saved the final model"});
}

bool Client::may_go() {
  const std::lock_guard lock(state_->mutex);
  if (!state_->fatal) return state_->has_parted;
  log::warning("this island does not stay for others after the end of the run: {}",
               state_->fatal->what());
  return true;
}

}  // namespace atl::island
