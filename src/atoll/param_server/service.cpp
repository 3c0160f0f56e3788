#include "atoll/param_server/service.h"

#include <atomic>
#include <functional>
#include <mutex>
#include <random>
#include <thread>

#include "atoll/base/log.h"
#include "atoll/param_server/disk.h"
#include "atoll/param_server/scheduler.h"
#include "atoll/param_server/scheduler_store.h"
#include "atoll/param_server/server.h"
#include "atoll/wire/address.h"

namespace atl::param_server {

namespace {

using Clock = std::chrono::steady_clock;
using Letter = Mailbox::Letter;

constexpr std::chrono::milliseconds kTick{50};
// How far lanes have come is known to who has them too, so it may be a little old.
constexpr double kClocksEverySeconds = 1;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// What both have: a server of sessions, a mailbox, and a thread that empties it.
template <typename Status>
class Process : public wire::SessionHandler {
 public:
  void opened(wire::SessionId session, const wire::Peer& /*peer*/) override {
    mailbox_.put({.kind = Letter::Kind::kOpened, .from = Letter::From::kSession, .id = session});
  }
  void received(wire::SessionId session, std::string frame) override {
    mailbox_.put({.kind = Letter::Kind::kReceived,
                  .from = Letter::From::kSession,
                  .id = session,
                  .text = std::move(frame)});
  }
  void closed(wire::SessionId session, const std::string& why) override {
    mailbox_.put({.kind = Letter::Kind::kClosed,
                  .from = Letter::From::kSession,
                  .id = session,
                  .text = why});
  }

  std::string address() const { return listener_->address(); }
  bool is_finished() const { return is_finished_; }
  std::optional<Error> failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  Status status() const {
    const std::lock_guard lock(mutex_);
    return status_;
  }
  void stop() {
    mailbox_.stop();
    if (thread_.joinable()) thread_.join();
    if (listener_) listener_->stop();
  }

 protected:
  void listen(const ListenOptions& options) {
    listener_ = open_listener(options.listen, options.link, *this);
  }
  void run(const std::function<void(const Letter&)>& take, const std::function<void()>& after) {
    thread_ = std::thread([this, take, after] {
      try {
        while (!mailbox_.is_stopping()) {
          for (const Letter& letter : mailbox_.take(kTick)) take(letter);
          after();
        }
      } catch (const Error& error) {
        fail(error);
      } catch (const std::exception& error) {
        fail(Error(ErrorKind::kInternal, error.what()));
      }
    });
  }
  void fail(const Error& error) {
    const std::lock_guard lock(mutex_);
    failure_ = error;
  }
  // Notes, on the thread of run(), what status() gives from now on.
  void note(const Status& status) {
    const std::lock_guard lock(mutex_);
    status_ = status;
  }
  // A session that says what cannot be ends, and nothing else does.
  void guarded(std::uint64_t session, const std::function<void()>& take) {
    try {
      take();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kDamaged) throw;
      log::warning("a connection was closed: {}", error.what());
      listener_->close(session, error.what());
    }
  }

  Mailbox mailbox_;
  std::unique_ptr<Listener> listener_;
  std::atomic<bool> is_finished_ = false;
  Clock::time_point start_ = Clock::now();

 private:
  mutable std::mutex mutex_;
  std::optional<Error> failure_;
  Status status_;
  std::thread thread_;
};

}  // namespace

struct SchedulerService::State final : Process<SchedulerStatus> {
  State(ListenOptions options, const std::filesystem::path& dir) : scheduler({}, make_run()) {
    if (!dir.empty()) store.emplace(dir);
    if (store && store->found()) go_on(options);
    listen(options);
    write();
    run([this](const Letter& letter) { take(letter); }, [this] { after(); });
  }
  ~State() override { stop(); }

  void take(const Letter& letter) {
    if (letter.kind == Letter::Kind::kClosed) return scheduler.closed(letter.id);
    if (letter.kind != Letter::Kind::kReceived) return;
    guarded(letter.id, [&] { scheduler.received(letter.id, decode(letter.text)); });
  }
  static std::uint64_t make_run() {
    std::random_device random;
    return (std::uint64_t{random()} << 32 | random()) | 1;
  }
  void go_on(ListenOptions& options) {
    scheduler.restore(*store->found());
    wire::HostPort at = wire::parse_address(options.listen, "the address to listen at");
    if (at.port == 0) at.port = wire::parse_address(store->address(), "the address").port;
    options.listen = wire::to_string(at);
    log::info("the scheduler goes on from {}, in epoch {}", store->address(),
              scheduler.term().epoch);
  }
  void write() {
    if (!store) return;
    store->write(scheduler.state(), address());
    written = Clock::now();
  }

  void after() {
    scheduler.ticked(seconds_since(start_));
    // What others are told is on the disk before.
    const bool is_due = scheduler.take_changed();
    const bool is_moved = is_moved_ = scheduler.take_moved() || is_moved_;
    if (is_due || (is_moved && seconds_since(written) >= kClocksEverySeconds)) {
      write();
      is_moved_ = false;
    }
    for (Scheduler::Send& out : scheduler.take_sends()) {
      listener_->send(out.to, encode(out.message));
      if (out.closes) listener_->close(out.to, "refused");
    }
    for (const std::string& notice : scheduler.take_notices()) log::info("{}", notice);
    note({.workers = static_cast<std::int64_t>(scheduler.num_workers()),
          .servers = std::ssize(scheduler.view().servers),
          .views = static_cast<std::int64_t>(scheduler.view().number),
          .has_begun = scheduler.spec().has_value(),
          .why_failed = scheduler.why_failed()});
    if (!scheduler.is_over() || is_finished_) return;
    if (store) store->remove();
    store.reset();
    is_finished_ = true;
  }

  Scheduler scheduler;
  std::optional<SchedulerStore> store;
  bool is_moved_ = false;  // clocks that are not written
  Clock::time_point written = Clock::now();
};

SchedulerService::SchedulerService(const ListenOptions& options, const std::filesystem::path& dir)
    : state_(std::make_unique<State>(options, dir)) {}
SchedulerService::~SchedulerService() = default;
std::string SchedulerService::address() const {
  return state_->address();
}
bool SchedulerService::is_finished() const {
  return state_->is_finished();
}
SchedulerStatus SchedulerService::status() const {
  return state_->status();
}
std::optional<Error> SchedulerService::failure() const {
  return state_->failure();
}
void SchedulerService::stop() {
  state_->stop();
}

struct ServerService::State final : Process<ServerStatus> {
  State(const ListenOptions& options, const std::string& scheduler, const DiskOptions& disk_options,
        int threads)
      : disk(disk_options),
        device(open_device({.threads = threads})),
        stream(device->open_stream()) {
    listen(options);
    const std::string address =
        options.advertise.empty() ? listener_->address() : options.advertise;
    server.emplace(*stream, address);
    own_address = address;
    if (const std::optional<StoredSlices> stored = read_slices(disk.dir)) {
      server->restore(stored->spec, stored->slices);
      server->restore_name(stored->term, stored->server);
      named = stored->term;
      named_as = stored->server;
      log::info("{} read from {}", stored->slices.size(), disk.dir.string());
    }
    if (!disk.dir.empty()) server->keep_on_disk();
    links.emplace(mailbox_, scheduler, options.link);
    run([this](const Letter& letter) { take(letter); }, [this] { after(); });
  }
  ~State() override { stop(); }

  void take(const Letter& letter) {
    if (letter.from == Letter::From::kSession) {
      if (letter.kind == Letter::Kind::kClosed) return server->closed(letter.id);
      if (letter.kind != Letter::Kind::kReceived) return;
      guarded(letter.id, [&] {
        const Message message = decode(letter.text);
        count(message, letter.text.size());
        server->received(letter.id, message);
      });
      return send();
    }
    if (!links->note(letter)) return;
    const bool is_scheduler = letter.from == Letter::From::kScheduler;
    switch (letter.kind) {
      case Letter::Kind::kOpened:
        if (is_scheduler) return links->to_scheduler(server->hello());
        server->connected(static_cast<ServerId>(letter.id));
        break;
      case Letter::Kind::kReceived:
        if (is_scheduler) {
          server->received_from_scheduler(decode(letter.text));
        } else {
          server->received_from_server(static_cast<ServerId>(letter.id), decode(letter.text));
        }
        break;
      default:
        if (letter.is_final) throw user_error("{}", letter.text);
    }
    send();
  }

  void count(const Message& message, std::size_t bytes) {
    if (std::holds_alternative<Push>(message)) {
      ++counts.pushes;
      counts.pushed_bytes += static_cast<std::int64_t>(bytes);
    } else if (std::holds_alternative<Pull>(message)) {
      ++counts.pulls;
    }
  }

  void send() {
    links->follow(server->servers(), own_address);
    for (Server::Send& out : server->take_sends()) {
      switch (out.to.kind) {
        case ServerTarget::Kind::kScheduler:
          links->to_scheduler(out.message);
          break;
        case ServerTarget::Kind::kSession:
          listener_->send(out.to.id, encode(out.message));
          break;
        case ServerTarget::Kind::kServer:
          links->to_server(static_cast<ServerId>(out.to.id), out.message);
          break;
      }
    }
    links->flush();
  }

  void after() {
    send();
    for (const std::string& notice : server->take_notices()) log::warning("{}", notice);
    if (!server->refusal().empty()) throw user_error("{}", server->refusal());
    write_changed();
    write_own_name();
    if (server->is_over()) is_finished_ = true;
    // Not after every message: the sums are over all slices.
    if (!is_finished_ && Clock::now() - noted < kTick) return;
    noted = Clock::now();
    counts.slices = server->num_slices();
    counts.parameter_bytes = server->num_bytes();
    counts.lost_pushes = server->lost_pushes();
    counts.servers = std::ssize(server->servers());
    note(counts);
  }
  void write_changed() {
    if (disk.dir.empty() || !server->spec()) return;
    if (!server->waits_for_disk() && seconds_since(written) < disk.every_seconds) return;
    write_slices(disk.dir, *server->spec(), server->take_changed());
    written = Clock::now();
    server->written();
    send();
  }
  void write_own_name() {
    const bool is_known = named.run == server->term().run && named.epoch == server->term().epoch &&
                          named_as == server->id();
    if (disk.dir.empty() || is_known) return;
    write_name(disk.dir, server->term(), server->id());
    named = server->term();
    named_as = server->id();
  }

  DiskOptions disk;
  Term named;  // on disk
  ServerId named_as = kNobody;
  ServerStatus counts;
  Clock::time_point noted = {};
  Clock::time_point written = Clock::now();
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  std::optional<Server> server;
  std::string own_address;
  std::optional<Links> links;
};

ServerService::ServerService(const ListenOptions& options, const std::string& scheduler,
                             const DiskOptions& disk, int threads)
    : state_(std::make_unique<State>(options, scheduler, disk, threads)) {}
ServerService::~ServerService() = default;
std::string ServerService::address() const {
  return state_->own_address;
}
bool ServerService::is_finished() const {
  return state_->is_finished();
}
ServerStatus ServerService::status() const {
  return state_->status();
}
std::optional<Error> ServerService::failure() const {
  return state_->failure();
}
void ServerService::stop() {
  state_->stop();
}

}  // namespace atl::param_server
