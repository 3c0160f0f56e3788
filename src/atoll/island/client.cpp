#include "atoll/island/client.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>
#include <variant>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/compress/codec.h"
#include "atoll/island/exchange.h"
#include "atoll/island/member.h"
#include "atoll/island/messages.h"
#include "atoll/wire/blobs.h"
#include "atoll/wire/server.h"
#include "atoll/wire/session.h"

namespace atl::island {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kTick{50};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double norm_of(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}

// Means travel less often than what they are of, and all islands start from them: they are rounded
// once, at most.
const char* sum_codec_of(const std::string& codec) {
  return codec == "f32" ? "f32" : "bf16";
}

MemberStart start_of(const OuterState& state, std::vector<BatchRange> holds, bool in_round) {
  return {.outer_step = state.outer_step(),
          .hashes = state.hashes(),
          .holds = std::move(holds),
          .in_round = in_round};
}

}  // namespace

struct Client::State {
  State(const ClientOptions& options, OuterState& outer, std::vector<BatchRange> holds,
        bool in_round);
  ~State();

  // A piece of work that takes long, done by the worker.
  using Job = std::function<void(const std::stop_token& cancel)>;

  // What happened; on which connection to the coordinator, if on one.
  struct Happening {
    decltype(MemberEvent::what) what;
    std::uint64_t connection = 0;
  };

  void post(decltype(MemberEvent::what) what, std::uint64_t of_connection = 0);
  void run_machine();
  void run_worker();
  void give(Job job, std::stop_source cancel);
  void fail(const Error& error);

  void perform(const SendToCoordinator& send);
  void perform(const Connect& connect);
  void perform(const StartReduce& start);
  void perform(const StopReduce& stop);
  void perform(const Swap& swap);
  void perform(const FetchState& fetch);
  void perform(const Adopt& adopt);
  void perform(const StartRound& round);
  void perform(const Halt& halt);
  void perform(const Warn& warn);

  void connect();
  void tell_of(const Happening& happening);
  void note_members();
  void reduce(const StartReduce& start, const std::stop_token& cancel);
  void fetch(const FetchState& fetch, const std::stop_token& cancel);
  void offer(const Contribution& contribution, std::uint64_t num_adopted);
  void publish(int fragment);
  void push(OuterChange change);
  std::map<IslandId, std::string> names() const;
  double now() const { return seconds_since(begin); }

  ClientOptions options;
  OuterState& outer;
  std::unique_ptr<compress::Codec> codec, sum_codec;
  Clock::time_point begin = Clock::now();
  wire::BlobStore store;
  std::unique_ptr<wire::Server> server;
  std::unique_ptr<Exchange> exchange;

  // The machine's thread alone.
  std::optional<Member> member;
  std::unique_ptr<wire::Session> session;
  std::uint64_t connection = 0;  // number of `session`
  std::optional<Clock::time_point> connects_at;
  bool is_refused = false;  // a mistake of whoever started it
  bool is_told_of_absence = false;
  island::View noted;
  std::stop_source reducing, fetching;
  Stamp reducing_stamp;
  Clock::time_point reduce_began;
  std::uint64_t sent_before = 0, received_before = 0;

  // By fragment: what the codec could not say, before and after the last offer. The worker changes
  // them; `error` under the mutex.
  std::vector<std::vector<float>> error, error_next;

  mutable std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::deque<Happening> events;
  std::deque<std::pair<Job, std::stop_source>> jobs;
  std::deque<OuterChange> changes;
  std::deque<Lease> leases;
  bool was_dropped = false;       // what was handed in last, as the newest of `leases` says
  std::uint64_t num_adopted = 0;  // changes that dropped work, and that the trainer has seen
  int num_active = 1;
  IslandId own_id = kNobody;
  std::map<IslandId, std::string> known_names;  // by which TLS knows the others
  std::uint64_t num_news = 0;
  std::uint64_t seen_news = 0;
  bool is_finished = false;
  bool is_stopping = false;
  std::optional<Error> fatal;

  std::thread machine, worker;
};

Client::State::State(const ClientOptions& given, OuterState& state, std::vector<BatchRange> holds,
                     bool in_round)
    : options(given),
      outer(state),
      codec(compress::make_codec(given.codec)),
      sum_codec(compress::make_codec(sum_codec_of(given.codec))) {
  std::string address;
  if (!options.listen.empty()) {
    server = std::make_unique<wire::Server>(
        wire::ServerOptions{.listen = options.listen, .identity = options.identity}, nullptr,
        &store);
    address = options.advertise.empty() ? server->address() : options.advertise;
  }
  exchange = std::make_unique<Exchange>(
      ExchangeOptions{.coordinator = options.coordinator, .identity = options.identity}, store,
      *codec, *sum_codec);
  const auto fragments = static_cast<std::size_t>(outer.num_fragments());
  error.resize(fragments);
  error_next.resize(fragments);
  for (std::size_t f = 0; f < fragments; ++f) {
    publish(static_cast<int>(f));
    if (!codec->wants_error()) continue;
    error[f].resize(outer.elements(static_cast<int>(f)));
    if (f < options.codec_errors.size()) error[f] = options.codec_errors[f];
  }
  member.emplace(MemberOptions{.name = options.name,
                               .identity = options.run,
                               .plan = options.plan,
                               .address = address,
                               .give_up_after = options.give_up_after_s},
                 start_of(outer, std::move(holds), in_round));
  connects_at = Clock::now();
  machine = std::thread([this] { run_machine(); });
  worker = std::thread([this] { run_worker(); });
}

Client::State::~State() {
  {
    const std::lock_guard lock(mutex);
    is_stopping = true;
    for (auto& [job, cancel] : jobs) cancel.request_stop();
  }
  changed.notify_all();
  machine.join();
  reducing.request_stop();
  fetching.request_stop();
  worker.join();
  session.reset();
  exchange.reset();  // before the server: it withdraws what is being fetched
  if (server) server->stop();
}

void Client::State::post(decltype(MemberEvent::what) what, std::uint64_t of_connection) {
  {
    const std::lock_guard lock(mutex);
    events.push_back({std::move(what), of_connection});
  }
  changed.notify_all();
}

void Client::State::fail(const Error& error_of) {
  {
    const std::lock_guard lock(mutex);
    if (!fatal) fatal = error_of;
  }
  changed.notify_all();
}

void Client::State::run_machine() {
  try {
    Clock::time_point tick = Clock::now();
    for (;;) {
      std::deque<Happening> batch;
      {
        std::unique_lock lock(mutex);
        changed.wait_until(lock, tick, [&] { return is_stopping || !events.empty(); });
        if (is_stopping) return;
        std::swap(batch, events);
      }
      if (connects_at && Clock::now() >= *connects_at) connect();
      if (Clock::now() >= tick) {
        batch.push_back({MemberTicked{}});
        tick = Clock::now() + kTick;
      }
      for (Happening& happening : batch) {
        // What a connection brought that was given up meanwhile is not to be told.
        if (happening.connection != 0 && happening.connection != connection) continue;
        tell_of(happening);
        const auto actions = member->handle({now(), std::move(happening.what)});
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

void Client::State::run_worker() {
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

void Client::State::give(Job job, std::stop_source cancel) {
  {
    const std::lock_guard lock(mutex);
    jobs.emplace_back(std::move(job), std::move(cancel));
  }
  changed.notify_all();
}

void Client::State::note_members() {
  const bool is_known = own_id == member->id() && member->view() == noted;
  if (is_known) return;
  noted = member->view();
  const auto active = std::count_if(noted.members.begin(), noted.members.end(),
                                    [](const auto& one) { return one.state == "active"; });
  const std::lock_guard lock(mutex);
  num_active = std::max(1, static_cast<int>(active));
  own_id = member->id();
  if (!options.identity) return;
  for (const View::Member& one : noted.members) known_names[one.island] = one.name;
}

// ---- what the machine wants done ----

// Says once that there is no coordinator, and once that there is one again.
void Client::State::tell_of(const Happening& happening) {
  if (const auto* said = std::get_if<CoordinatorSaid>(&happening.what)) {
    is_refused |= std::holds_alternative<Refused>(said->message.body);
  } else if (const auto* lost = std::get_if<CoordinatorLost>(&happening.what)) {
    if (!is_told_of_absence && member->id() == kNobody) {
      log::warning("no coordinator at {} yet: {}; it is tried again for {:.0f} s",
                   options.coordinator, lost->why, options.give_up_after_s);
    }
    is_told_of_absence = true;
  } else if (std::holds_alternative<CoordinatorReached>(happening.what)) {
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
      wire::SessionOptions{.address = options.coordinator, .identity = options.identity},
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
  if (session) session->send(encode(send.message));
}

// At once without the old one, which would make a connection by itself meanwhile: the coordinator
// would have this island twice.
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

void Client::State::reduce(const StartReduce& start, const std::stop_token& cancel) {
  std::vector<float> mean(outer.elements(start.reduce.fragment));
  IslandId self = kNobody;
  std::map<IslandId, std::string> known;
  {
    const std::lock_guard lock(mutex);
    self = own_id;
    known = known_names;
  }
  const ExchangeResult result =
      exchange->reduce(start.stamp, start.reduce, self, known, mean, cancel);
  if (cancel.stop_requested()) return;
  if (!result.is_done) {
    post(ReduceBroke{start.stamp, result.unreachable, result.why});
    return;
  }
  post(ReduceDone{start.stamp, outer.prepare(start.reduce.fragment, mean)});
}

void Client::State::perform(const Swap& swap) {
  ATOLL_CHECK(outer.swap(swap.outer_step, swap.fragment, swap.hash),
              "outer step {} was committed and is not beside the state", swap.outer_step);
  publish(swap.fragment);
  if (swap.was_mine && codec->wants_error()) {
    const auto at = static_cast<std::size_t>(swap.fragment);
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
  const std::vector<StateHash> have = outer.hashes();
  std::vector<std::vector<float>> fetched(wanted.hashes.size());
  std::map<IslandId, std::string> known;
  {
    const std::lock_guard lock(mutex);
    known = known_names;
  }
  for (std::size_t f = 0; f < wanted.hashes.size(); ++f) {
    if (f < have.size() && have[f] == wanted.hashes[f]) continue;
    std::vector<float>& values = fetched[f];
    values.resize(outer.values_size(static_cast<int>(f)));
    const ExchangeResult result =
        exchange->fetch_state(wanted.hashes[f], wanted.sources, known, values, cancel);
    if (cancel.stop_requested()) return;
    if (!result.is_done) {
      post(FetchFailed{result.why});
      return;
    }
    if (hash_of(values) != wanted.hashes[f]) {
      post(FetchFailed{"what came is not the run's state"});
      return;
    }
  }
  for (std::size_t f = 0; f < fetched.size(); ++f) {
    if (fetched[f].empty()) continue;
    outer.replace(static_cast<int>(f), wanted.outer_step, std::move(fetched[f]));
    publish(static_cast<int>(f));
  }
  outer.set_outer_step(wanted.outer_step);
  post(StateFetched{wanted.outer_step, wanted.hashes});
}

void Client::State::perform(const Adopt& adopt) {
  push({.kind = OuterChange::Kind::kReplaced,
        .outer_step = adopt.outer_step,
        .drops_work = adopt.drops_work});
}

void Client::State::perform(const StartRound& round) {
  {
    const std::lock_guard lock(mutex);
    leases.push_back(round.lease);
    was_dropped |= round.follows_drop;
    ++num_news;
  }
  changed.notify_all();
}

void Client::State::perform(const Halt& halt) {
  if (!halt.is_done) {
    fail(is_refused ? user_error("{}", halt.why) : make_error(ErrorKind::kPeer, "{}", halt.why));
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
  {
    const std::lock_guard lock(mutex);
    // What was granted before is of the work that is dropped.
    if (change.drops_work) leases.clear();
    changes.push_back(std::move(change));
    ++num_news;
  }
  changed.notify_all();
}

void Client::State::publish(int fragment) {
  const auto state = outer.current(fragment);
  if (state) exchange->publish_state(fragment, state->hash, state->values, state);
}

// ---- what the trainer hands in ----

void Client::State::offer(const Contribution& contribution, std::uint64_t adopted) {
  const auto at = static_cast<std::size_t>(contribution.fragment);
  Ready ready = {.base_hash = contribution.base_hash,
                 .tokens = contribution.tokens,
                 .consumed = contribution.consumed,
                 .norm = norm_of(contribution.delta),
                 .loss = contribution.loss};
  ready.is_finite = std::isfinite(ready.norm);
  if (ready.is_finite) {
    error_next[at] = error[at];
    EncodedDelta encoded = encode_pieces(*codec, contribution.delta, error_next[at]);
    ready.encoded_bytes = encoded.bytes.size();
    ready.chunk_bytes = encoded.piece_bytes;
    exchange->offer(contribution.outer_step, std::move(encoded));
  }
  post(RoundDone{.num_adopted = adopted, .outer_step = contribution.outer_step, .ready = ready});
}

Client::Client(const ClientOptions& options, OuterState& state, std::vector<BatchRange> holds,
               bool in_round)
    : state_(std::make_unique<State>(options, state, std::move(holds), in_round)) {}

Client::~Client() = default;

std::optional<OuterChange> Client::next_change() {
  const std::lock_guard lock(state_->mutex);
  if (state_->fatal) throw Error(*state_->fatal);
  if (state_->changes.empty()) return std::nullopt;
  OuterChange change = std::move(state_->changes.front());
  state_->changes.pop_front();
  if (change.drops_work) ++state_->num_adopted;
  return change;
}

std::optional<Lease> Client::next_lease() {
  const std::lock_guard lock(state_->mutex);
  if (state_->fatal) throw Error(*state_->fatal);
  // What was granted after a change is for who has seen it.
  if (state_->leases.empty() || !state_->changes.empty()) return std::nullopt;
  Lease lease = std::move(state_->leases.front());
  state_->leases.pop_front();
  return lease;
}

void Client::hand_in(Contribution contribution) {
  std::uint64_t adopted = 0;
  {
    const std::lock_guard lock(state_->mutex);
    adopted = state_->num_adopted;
    state_->was_dropped = false;  // of the one before
  }
  State* const state = state_.get();
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
  return state_->is_finished && state_->changes.empty();
}

std::vector<float> Client::codec_error(int fragment) {
  const std::lock_guard lock(state_->mutex);
  return state_->error[static_cast<std::size_t>(fragment)];
}

bool Client::was_dropped() {
  const std::lock_guard lock(state_->mutex);
  // A commit that answers it is heard first.
  if (!state_->changes.empty()) return false;
  return std::exchange(state_->was_dropped, false);
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

}  // namespace atl::island
