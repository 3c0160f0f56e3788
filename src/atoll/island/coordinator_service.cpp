#include "atoll/island/coordinator_service.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "atoll/base/file.h"
#include "atoll/base/log.h"
#include "atoll/island/coordinator.h"
#include "atoll/island/hub.h"
#include "atoll/island/ledger.h"
#include "atoll/island/messages.h"
#include "atoll/island/trace.h"
#include "atoll/wire/server.h"

namespace atl::island {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using nlohmann::ordered_json;

constexpr const char* kRunFile = "run.json";
constexpr std::chrono::milliseconds kTick{250};
// Islands that have heard of the end close their connections; one that is stopped does so when it
// goes on, or is not waited for.
constexpr std::chrono::seconds kFarewell{30};

struct RunFile {
  RunIdentity identity;
  RunPlan plan;
};

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
                               {"is_private", run.plan.is_private}}}};
  return json.dump(2) + "\n";
}

RunFile parse_run(const fs::path& path) {
  try {
    const ordered_json json = ordered_json::parse(read_file(path));
    const ordered_json& identity = json.at("identity");
    const ordered_json& plan = json.at("plan");
    return {{identity.at("run"), identity.at("version"), identity.at("model"),
             identity.at("tokenizer"), identity.at("data"), identity.at("settings")},
            {plan.at("num_fragments"), plan.at("inner_steps"), plan.at("total_batches"),
             plan.at("min_islands"), plan.at("quorum"), plan.at("grace_seconds"),
             plan.at("is_private")}};
  } catch (const ordered_json::exception& error) {
    throw damaged_error("{} does not say what the run is: {}", path.string(), error.what());
  }
}

// What the connections have brought, in order.
struct Arrival {
  enum class Kind { kOpened, kReceived, kClosed } kind = Kind::kOpened;
  wire::SessionId session = 0;
  std::string text;  // a frame; why it was closed; the name of who opened it
};

}  // namespace

struct CoordinatorService::State : wire::SessionHandler {
  explicit State(const ServiceOptions& options) : dir(options.dir) {
    std::error_code error;
    fs::create_directories(dir, error);
    if (error) throw io_error("cannot create", dir, error.value());
    if (fs::exists(dir / kRunFile)) begin(parse_run(dir / kRunFile));
    server = std::make_unique<wire::Server>(
        wire::ServerOptions{.listen = options.listen, .identity = options.identity}, this,
        &hub.store());
    thread = std::thread([this] { loop(); });
  }
  ~State() override { stop(); }

  void opened(wire::SessionId session, const wire::Peer& peer) override {
    arrive({Arrival::Kind::kOpened, session, peer.name});
  }
  void received(wire::SessionId session, std::string frame) override {
    arrive({Arrival::Kind::kReceived, session, std::move(frame)});
  }
  void closed(wire::SessionId session, const std::string& why) override {
    arrive({Arrival::Kind::kClosed, session, why});
  }

  void arrive(Arrival arrival) {
    {
      const std::lock_guard lock(mutex);
      arrivals.push_back(std::move(arrival));
    }
    changed.notify_all();
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
    const std::vector<LogRecord> log = ledger->read();
    for (const LogRecord& record : log) count(record.body);
    coordinator.emplace(options, ledger->fence(), log);
  }

  void count(const LogBody& body) {
    if (const auto* commit = std::get_if<LogCommit>(&body)) {
      most_outer_steps = std::max(most_outer_steps, commit->outer_step + 1);
    }
  }

  void loop() {
    try {
      Clock::time_point tick = Clock::now();
      for (;;) {
        std::deque<Arrival> batch;
        {
          std::unique_lock lock(mutex);
          changed.wait_until(lock, tick, [&] { return is_stopping || !arrivals.empty(); });
          if (is_stopping) return;
          std::swap(batch, arrivals);
        }
        for (const Arrival& arrival : batch) take(arrival);
        if (Clock::now() < tick) continue;
        tick = Clock::now() + kTick;
        if (coordinator) act({now(), BytesCame{hub.heard()}});
        if (coordinator) act({now(), ClockTicked{}});
        if (coordinator) hub.tick(coordinator->members().count(MemberState::kSyncing) > 0);
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

  // Islands that have nothing more to say are gone, and so may this be.
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
        names[arrival.session] = arrival.text;
        if (coordinator) act({now(), ConnectionOpened{arrival.session}});
        break;
      case Arrival::Kind::kClosed:
        forget(arrival.session);
        if (coordinator) act({now(), ConnectionClosed{arrival.session, arrival.text}});
        break;
      case Arrival::Kind::kReceived:
        receive(arrival);
        break;
    }
  }

  void receive(const Arrival& arrival) {
    if (!names.contains(arrival.session)) return;  // closed by us meanwhile
    MessageFromIsland message;
    try {
      message = decode_from_island(arrival.text);
    } catch (const Error& error) {
      close(arrival.session, error.what());
      return;
    }
    if (!std::holds_alternative<Heartbeat>(message.body)) {
      trace("outer step {}: message {} of island {}", message.stamp.outer_step + 1,
            message.body.index(), message.stamp.sender);
    }
    if (const auto* join = std::get_if<Join>(&message.body)) {
      const std::string& name = names[arrival.session];
      if (!name.empty() && name != join->name) {
        refuse(arrival.session, fmt::format("the certificate is of {}, not of {}; give island.name "
                                            "the name that the certificate was issued for",
                                            name, join->name));
        return;
      }
      if (!coordinator && !found(*join, arrival.session)) return;
      state_sizes[arrival.session] = join->state_sizes;
      if (join->outer_step > most_outer_steps) {  // commits are in the ledger before islands know
        refuse(
            arrival.session,
            fmt::format("the checkpoint of {} is of outer step {}, and the ledger in {} never had "
                        "more than {}: give the coordinator the directory that it had before, or "
                        "the island another run.dir",
                        join->name, join->outer_step, dir.string(), most_outer_steps));
        return;
      }
    }
    if (const auto* ready = std::get_if<Ready>(&message.body)) {
      hub.offer(message.stamp.sender, *ready);
    }
    if (coordinator) act({now(), ConnectionReceived{arrival.session, std::move(message)}});
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
    server->close(session, why);
    forget(session);
    if (coordinator) act({now(), ConnectionClosed{session, why}});
  }

  void forget(wire::SessionId session) {
    names.erase(session);
    state_sizes.erase(session);
  }

  void act(const CoordinatorEvent& event) {
    std::vector<CoordinatorAction> actions = coordinator->handle(event);
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

  // Several for the price of one: syncing the disk is what takes time.
  void log(std::span<const LogBody> bodies) {
    ledger->append(bodies);
    for (const LogBody& body : bodies) count(body);
    trace("logged {} records", bodies.size());
  }

  void perform(const SendToIslands& send) {
    trace("outer step {}: message {} to {} islands", send.message.stamp.outer_step + 1,
          send.message.body.index(), send.to.size());
    if (const auto* reduce = std::get_if<Reduce>(&send.message.body)) {
      if (reduce->is_star) hub.serve(send.message.stamp, *reduce);
    } else if (const auto* put = std::get_if<PutState>(&send.message.body)) {
      const auto missing = hub.serve(state_sizes[send.to.front()], *put);
      if (!missing) return;
      server->send(send.to.front(), encode(MessageToIsland{send.message.stamp, *missing}));
      return;
    }
    const std::string frame = encode(send.message);
    for (const ConnectionId to : send.to) server->send(to, frame);
  }
  void perform(const AppendToLog&) {}  // done before all others
  void perform(const CloseConnection& gone) {
    server->close(gone.connection, gone.why);
    forget(gone.connection);
  }
  void perform(const Notice& notice) {
    if (notice.is_warning) {
      log::warning("{}", notice.text);
    } else {
      log::info("{}", notice.text);
    }
  }

  void stop() {
    {
      const std::lock_guard lock(mutex);
      is_stopping = true;
    }
    changed.notify_all();
    if (thread.joinable()) thread.join();
    if (server) server->stop();
    coordinator.reset();
    ledger.reset();
  }

  fs::path dir;
  Clock::time_point start = Clock::now();
  Hub hub;
  std::optional<Ledger> ledger;
  std::optional<Coordinator> coordinator;
  std::map<wire::SessionId, std::string> names;  // open sessions, by the certificates' names
  std::optional<Clock::time_point> finished_at;
  std::int64_t most_outer_steps = 0;  // that were ever committed, though some may be void now
  std::map<wire::SessionId, std::vector<std::uint64_t>> state_sizes;  // as its Join said

  mutable std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::deque<Arrival> arrivals;
  bool is_stopping = false;
  bool is_finished = false;
  std::optional<Error> failed;

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

std::optional<Error> CoordinatorService::failure() const {
  const std::lock_guard lock(state_->mutex);
  return state_->failed;
}

void CoordinatorService::stop() {
  state_->stop();
}

}  // namespace atl::island
