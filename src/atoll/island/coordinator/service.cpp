#include "atoll/island/coordinator/service.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/json.h"
#include "atoll/base/log.h"
#include "atoll/island/client/delta_pieces.h"
#include "atoll/island/coordinator/blob_relay.h"
#include "atoll/island/coordinator/coordinator.h"
#include "atoll/island/coordinator/inbox.h"
#include "atoll/island/coordinator/roster.h"
#include "atoll/island/ledger/ledger.h"
#include "atoll/island/protocol/messages.h"
#include "atoll/island/protocol/trace.h"
#include "atoll/wire/secret.h"
#include "atoll/wire/server.h"

namespace atl::island {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using nlohmann::ordered_json;

constexpr const char* kRunFile = "run.json";
constexpr const char* kKeptList = "revoked.pem";
constexpr std::chrono::milliseconds kTick{250};
// Islands that have heard of the end close their connections; one that is stopped does so when it
// goes on, or is not waited for.
constexpr std::chrono::seconds kFarewell{30};

struct RunFile {
  RunIdentity identity;
  RunPlan plan;
};

ordered_json to_json(const RoundSchedule& x) {
  return {{"inner_steps", x.inner_steps},
          {"overlap", x.overlap},
          {"codec", x.codec},
          {"outer_lr", x.outer_lr}};
}

RoundSchedule schedule_from(const ordered_json& json) {
  return {.inner_steps = json.at("inner_steps"),
          .overlap = json.at("overlap"),
          .codec = json.at("codec"),
          .outer_lr = json.at("outer_lr")};
}

ordered_json to_json(const PolicyPlan& x) {
  return {{"policy", x.policy},
          {"base", to_json(x.base)},
          {"min_inner_steps", x.min_inner_steps},
          {"max_inner_steps", x.max_inner_steps},
          {"may_overlap", x.may_overlap},
          {"may_change_codec", x.may_change_codec},
          {"may_change_lr", x.may_change_lr},
          {"qsr_alpha", x.qsr_alpha},
          {"round_bytes", x.round_bytes},
          {"day_bytes", x.day_bytes},
          {"parameters", x.parameters},
          {"fragments", x.fragments}};
}

PolicyPlan policy_from(const ordered_json& json) {
  return {.policy = json.at("policy"),
          .base = schedule_from(json.at("base")),
          .min_inner_steps = json.at("min_inner_steps"),
          .max_inner_steps = json.at("max_inner_steps"),
          .may_overlap = json.at("may_overlap"),
          .may_change_codec = json.at("may_change_codec"),
          .may_change_lr = json.at("may_change_lr"),
          .qsr_alpha = json.at("qsr_alpha"),
          .round_bytes = json.at("round_bytes"),
          .day_bytes = json.at("day_bytes"),
          .parameters = json.at("parameters"),
          .fragments = json.at("fragments")};
}

std::string to_json(const RunFile& run) {
  const ordered_json json = {{"format", "atoll run"},
                             {"version", 1},
                             {"identity",
                              {{"run", run.identity.run},
                               {"version", run.identity.version},
                               {"model", run.identity.model},
                               {"tokenizer", run.identity.tokenizer},
                               {"data", run.identity.data},
                               {"settings", run.identity.settings}}},
                             {"plan",
                              {{"num_fragments", run.plan.num_fragments},
                               {"inner_steps", run.plan.inner_steps},
                               {"total_batches", run.plan.total_batches},
                               {"min_islands", run.plan.min_islands},
                               {"quorum", run.plan.quorum},
                               {"grace_seconds", run.plan.grace_seconds},
                               {"is_private", run.plan.is_private},
                               {"state_sizes", run.plan.state_sizes},
                               {"policy", to_json(run.plan.policy)},
                               {"is_async", run.plan.is_async},
                               {"is_gossip", run.plan.is_gossip}}}};
  return json.dump(2) + "\n";
}

RunFile parse_run(const fs::path& path) {
  try {
    const ordered_json json = parse_ordered_json(read_file(path), path.string());
    const ordered_json& identity = json.at("identity");
    const ordered_json& plan = json.at("plan");
    return {{identity.at("run"), identity.at("version"), identity.at("model"),
             identity.at("tokenizer"), identity.at("data"), identity.at("settings")},
            {plan.at("num_fragments"), plan.at("inner_steps"), plan.at("total_batches"),
             plan.at("min_islands"), plan.at("quorum"), plan.at("grace_seconds"),
             plan.at("is_private"), plan.value("state_sizes", std::vector<std::uint64_t>()),
             plan.contains("policy") ? policy_from(plan.at("policy")) : PolicyPlan{},
             plan.value("is_async", false), plan.value("is_gossip", false)}};
  } catch (const ordered_json::exception& error) {
    throw damaged_error("{} does not say what the run is: {}", path.string(), json_reason(error));
  }
}

using Arrival = Inbox::Arrival;

}  // namespace

struct CoordinatorService::State : wire::SessionHandler {
  explicit State(const ServiceOptions& options)
      : dir(options.dir),
        failure_detector(options.failure_detector),
        on_island_lost(options.on_island_lost) {
    std::error_code error;
    fs::create_directories(dir, error);
    if (error) throw io_error("cannot create", dir, error.value());
    if (options.secret && !path_exists(*options.secret)) wire::Secret::make(*options.secret);
    if (path_exists(dir / kRunFile)) begin(parse_run(dir / kRunFile));
    server = std::make_unique<wire::Server>(wire::ServerOptions{.listen = options.listen,
                                                                .identity = options.identity,
                                                                .secret = options.secret,
                                                                .kept_list = dir / kKeptList},
                                            this, &blob_relay.store());
    thread = std::thread([this] { loop(); });
  }
  ~State() override { stop(); }

  void opened(wire::SessionId session, const wire::Peer& peer) override {
    inbox.opened(session, peer.name);
  }
  void received(wire::SessionId session, std::string frame) override {
    if (inbox.received(session, std::move(frame), roster.island_of(session) != kNobody)) return;
    throw make_error(ErrorKind::kPeer, "it says more than is heard, or before it has joined");
  }
  void closed(wire::SessionId session, const std::string& why) override {
    inbox.closed(session, why);
  }

  void begin(const RunFile& run) {
    if (run.identity.version != kProtocolVersion) {
      throw user_error(
          "{} is of a run in version {} of the protocol, and this program speaks {}: finish the "
          "run with the atoll that it was begun with, or give a new one another directory",
          (dir / kRunFile).string(), run.identity.version, kProtocolVersion);
    }
    ledger.emplace(Ledger::open(dir / kLedgerFile, run.identity));
    CoordinatorOptions options;
    options.identity = run.identity;
    options.plan = run.plan;
    options.failure_detector = failure_detector;
    const std::vector<LogRecord> log = ledger->read();
    for (const LogRecord& record : log) count(record.body, record.unix_seconds);
    coordinator.emplace(options, ledger->fence(), log);
  }

  void count(const LogBody& body, double unix_seconds) {
    if (const auto* reduce = std::get_if<LogReduce>(&body)) {
      ++counts.attempts;
      counts.contributions = static_cast<int>(reduce->contributions.size());
    } else if (const auto* voided = std::get_if<LogVoid>(&body)) {
      counts.voids += standing - voided->first_outer_step;
      standing = voided->first_outer_step;
    } else if (const auto* commit = std::get_if<LogCommit>(&body)) {
      most_outer_steps = std::max(most_outer_steps, commit->outer_step + 1);
      standing = commit->outer_step + 1;
      ++counts.commits;
      counts.committed_at_s = unix_seconds;
      counts.exchange_seconds = commit->exchange_seconds;
      counts.round_seconds = commit->round_seconds;
    }
  }

  // What status() gives from now on.
  void note_status() {
    CoordinatorStatus now = counts;
    now.connections = std::ssize(names);
    if (coordinator) {
      const LeaseTable& leases = coordinator->state().leases();
      now.has_begun = true;
      now.outer_steps = coordinator->state().outer_step();
      now.batches_consumed = leases.num_consumed();
      now.batches_leased = leases.num_leased();
      now.batches = leases.total_batches();
      for (std::size_t i = 0; i < now.islands.size(); ++i) {
        now.islands[i] = coordinator->members().count(static_cast<IslandState>(i));
      }
    }
    const std::lock_guard lock(mutex);
    status = now;
  }

  void loop() {
    try {
      Clock::time_point tick = Clock::now();
      for (;;) {
        const Inbox::Arrivals batch = inbox.take(tick);
        if (inbox.is_stopping()) return;
        for (const Arrival& arrival : batch) take(arrival);
        note_status();
        if (Clock::now() < tick) continue;
        tick = Clock::now() + kTick;
        if (coordinator) act({now(), BytesCame{blob_relay.heard()}});
        if (coordinator) act({now(), ClockTicked{}});
        if (coordinator) blob_relay.tick(coordinator->members().count(IslandState::kSyncing) > 0);
        note_end();
      }
    } catch (const Error& error) {
      fail(error);
    } catch (const std::exception& error) {
      fail(Error(ErrorKind::kInternal, error.what()));
    }
  }

  void fail(const Error& error) {
    const std::lock_guard lock(mutex);
    failed = error;
  }

  // All islands have left, so the service may end.
  void note_end() {
    if (!coordinator) return;
    if (!coordinator->halted().empty()) {
      throw make_error(ErrorKind::kPeer, "{}", coordinator->halted());
    }
    if (!coordinator->is_over()) return;
    if (!finished_at) finished_at = Clock::now();
    if (names.empty() || Clock::now() - *finished_at > kFarewell) {
      const std::lock_guard lock(mutex);
      is_finished = true;
    }
  }

  double now() const { return std::chrono::duration<double>(Clock::now() - start).count(); }

  void take(const Arrival& arrival) {
    switch (arrival.kind) {
      case Arrival::Kind::kOpened:
        names[arrival.connection] = arrival.text;
        if (coordinator) act({now(), ConnectionOpened{arrival.connection}});
        break;
      case Arrival::Kind::kClosed:
        forget(arrival.connection);
        if (coordinator) act({now(), ConnectionClosed{arrival.connection, arrival.text}});
        break;
      case Arrival::Kind::kReceived:
        receive(arrival);
        break;
    }
  }

  void receive(const Arrival& arrival) {
    if (!names.contains(arrival.connection)) return;  // closed by us meanwhile
    MessageFromIsland message;
    try {
      message = decode_from_island(arrival.text);
    } catch (const Error& error) {
      close(arrival.connection, error.what());
      return;
    }
    if (!std::holds_alternative<Heartbeat>(message.body)) {
      trace("outer step {}: message {} of island {}", message.stamp.outer_step + 1,
            message.body.index(), message.stamp.sender);
    }
    if (const std::string why = misattribution(arrival.connection, message); !why.empty()) {
      close(arrival.connection, why);
      return;
    }
    if (const auto* join = std::get_if<Join>(&message.body)) {
      const std::string& name = names[arrival.connection];
      if (!name.empty() && name != join->name) {
        refuse(arrival.connection,
               fmt::format("the certificate is of {}, not of {}; give island.name "
                           "the name that the certificate was issued for",
                           name, join->name));
        return;
      }
      if (!coordinator && !found(*join, arrival.connection)) return;
      if (join->outer_step > most_outer_steps) {  // commits are in the ledger before islands know
        refuse(
            arrival.connection,
            fmt::format("the checkpoint of {} is of outer step {}, and the ledger in {} never had "
                        "more than {}: give the coordinator the directory that it had before, or "
                        "the island another run.dir",
                        join->name, join->outer_step, dir.string(), most_outer_steps));
        return;
      }
    }
    if (!coordinator) return;
    CoordinatorEvent event = {now(), ClockTicked{}};
    event.what = ConnectionReceived{arrival.connection, std::move(message)};
    act(event);
  }

  // Why a message does not belong to the island that has joined by its connection; "": it does.
  std::string misattribution(wire::SessionId session, const MessageFromIsland& message) const {
    const IslandId island = roster.island_of(session);
    const bool is_join = std::holds_alternative<Join>(message.body);
    if (island == kNobody) {
      return is_join ? "" : "the first message of a connection was not a Join";
    }
    if (is_join) return fmt::format("island {} sent a second Join on its connection", island);
    if (message.stamp.sender == island) return "";
    return fmt::format("island {} sent a message as island {}", island, message.stamp.sender);
  }

  // The first island says what the run is.
  bool found(const Join& join, wire::SessionId session) {
    const RunFile run = {join.identity, join.plan};
    if (join.identity.version != kProtocolVersion) {
      refuse(session, fmt::format("it speaks version {} of the protocol, and the coordinator {}",
                                  join.identity.version, kProtocolVersion));
      return false;
    }
    const RunPlan& plan = run.plan;
    if (plan.num_fragments < 1 || plan.inner_steps < 1 || plan.total_batches < 1 ||
        plan.min_islands < 1) {
      refuse(session,
             "the plan of the run makes no sense: outer.islands, outer.inner_steps and "
             "train.steps must be at least 1");
      return false;
    }
    const auto num_sizes = plan.state_sizes.size();
    const bool has_sizes = num_sizes == static_cast<std::size_t>(plan.num_fragments);
    if ((num_sizes > 0 && !has_sizes) ||
        std::ranges::any_of(plan.state_sizes, [](auto size) { return size > kMaxStateBytes; })) {
      refuse(session, fmt::format("the plan of the run makes no sense: sizes of {} fragments are "
                                  "given and there are {}, of {} bytes at most",
                                  num_sizes, plan.num_fragments, kMaxStateBytes));
      return false;
    }
    if (const std::string why = policy_fault(plan.policy, plan.min_islands); !why.empty()) {
      refuse(session, "the plan of the run makes no sense: " + why);
      return false;
    }
    write_file(dir / kRunFile, to_json(run));
    begin(run);
    for (const auto& [other, name] : names) act({now(), ConnectionOpened{other}});
    return true;
  }

  // For good: an island that only lost its connection would come again.
  void refuse(wire::SessionId session, const std::string& why) {
    const Stamp stamp = {.fence = ledger ? ledger->fence() : 0, .sequence = 1};
    server->send(session, encode(MessageToIsland{stamp, Refused{.why = why, .is_final = true}}));
    close(session, why);
  }

  void close(wire::SessionId session, const std::string& why) {
    log::warning("a connection was closed: {}", why);
    forget(session);
    server->close(session, why);
    if (coordinator) act({now(), ConnectionClosed{session, why}});
  }

  void forget(wire::SessionId session) {
    names.erase(session);
    roster.dismiss(session);
  }

  void act(const CoordinatorEvent& event) {
    std::vector<CoordinatorAction> actions = coordinator->handle(event);
    note_joined(event);  // before it hears that it has
    std::vector<LogBody> bodies;
    for (CoordinatorAction& action : actions) {
      if (auto* append = std::get_if<AppendToLog>(&action))
        bodies.push_back(std::move(append->body));
    }
    if (!bodies.empty()) log(bodies);
    for (const CoordinatorAction& action : actions) {
      std::visit([this](const auto& what) { this->perform(what); }, action);
    }
  }

  // The connections that the coordinator has admitted are entered in the roster.
  void note_joined(const CoordinatorEvent& event) {
    const auto* received = std::get_if<ConnectionReceived>(&event.what);
    const auto* join = received != nullptr ? std::get_if<Join>(&received->message.body) : nullptr;
    if (join == nullptr || roster.island_of(received->connection) != kNobody) return;
    const Island* island = coordinator->members().of_connection(received->connection);
    if (island == nullptr) return;
    roster.admit(received->connection, island->id, names[received->connection], join->relay_token);
  }

  // Several for the price of one: syncing the disk is what takes time.
  void log(std::span<const LogBody> bodies) {
    ledger->append(bodies);
    const double unix_seconds =
        std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    for (const LogBody& body : bodies) count(body, unix_seconds);
    trace("logged {} records", bodies.size());
  }

  void perform(const SendToIslands& send) {
    trace("outer step {}: message {} to {} islands", send.message.stamp.outer_step + 1,
          send.message.body.index(), send.to.size());
    if (const auto* reduce = std::get_if<Reduce>(&send.message.body)) {
      if (reduce->is_star) blob_relay.serve(send.message.stamp, offers_of(*reduce));
    } else if (const auto* put = std::get_if<PutState>(&send.message.body)) {
      const auto missing = blob_relay.serve(coordinator->plan().state_sizes, *put,
                                            roster.island_of(send.to.front()));
      if (!missing) return;
      server->send(send.to.front(), encode(MessageToIsland{send.message.stamp, *missing}));
      return;
    }
    const std::string frame = encode(send.message);
    for (const ConnectionId to : send.to) server->send(to, frame);
  }
  // As the Ready of each said that the coordinator has taken.
  std::vector<RelayOffer> offers_of(const Reduce& reduce) const {
    std::vector<RelayOffer> offers;
    for (const Participant& participant : reduce.participants) {
      const std::optional<Ready>& ready = coordinator->members()[participant.island].ready;
      if (!ready) continue;
      offers.push_back({participant.island, ready->encoded_bytes, ready->chunk_bytes});
    }
    return offers;
  }
  void perform(const AppendToLog&) {}  // done before all others
  void perform(const CloseConnection& gone) {
    forget(gone.connection);  // before it can know
    server->close(gone.connection, gone.why);
  }
  void perform(const Notice& notice) {
    if (notice.is_lost_island) ++counts.islands_lost;
    if (notice.is_lost_island && on_island_lost) {
      on_island_lost(most_outer_steps, notice.text);
    }
    if (notice.is_warning) {
      log::warning("{}", notice.text);
    } else {
      log::info("{}", notice.text);
    }
  }

  void stop() {
    inbox.stop();
    if (thread.joinable()) thread.join();
    if (server) server->stop();
    coordinator.reset();
    ledger.reset();
  }

  fs::path dir;
  FailureDetectorLimits failure_detector;
  std::function<void(std::int64_t, const std::string&)> on_island_lost;
  Clock::time_point start = Clock::now();
  Inbox inbox;
  Roster roster;
  BlobRelay blob_relay{roster};
  std::optional<Ledger> ledger;
  std::optional<Coordinator> coordinator;
  std::map<wire::SessionId, std::string> names;  // open sessions, by the certificates' names
  std::optional<Clock::time_point> finished_at;
  std::int64_t most_outer_steps = 0;  // that were ever committed, though some may be void now
  std::int64_t standing = 0;          // outer steps that are committed and not void
  CoordinatorStatus counts;           // what is counted from event to event

  mutable std::mutex mutex;  // guards what follows
  bool is_finished = false;
  std::optional<Error> failed;
  CoordinatorStatus status;

  std::unique_ptr<wire::Server> server;
  std::thread thread;
};

CoordinatorService::CoordinatorService(const ServiceOptions& options)
    : state_(std::make_unique<State>(options)) {}

CoordinatorService::~CoordinatorService() = default;

std::string CoordinatorService::address() const {
  return state_->server->address();
}

bool CoordinatorService::is_finished() const {
  const std::lock_guard lock(state_->mutex);
  return state_->is_finished;
}

CoordinatorStatus CoordinatorService::status() const {
  const std::lock_guard lock(state_->mutex);
  return state_->status;
}

std::optional<Error> CoordinatorService::failure() const {
  const std::lock_guard lock(state_->mutex);
  return state_->failed;
}

void CoordinatorService::stop() {
  state_->stop();
}

}  // namespace atl::island
