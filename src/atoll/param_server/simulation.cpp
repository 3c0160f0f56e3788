#include "atoll/param_server/simulation.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/event_queue.h"
#include "atoll/base/rng.h"
#include "atoll/param_server/scheduler.h"
#include "atoll/param_server/server.h"
#include "atoll/param_server/worker_loop.h"

namespace atl::param_server {

namespace {

constexpr std::int64_t kElements = 4;  // of a slice
constexpr double kTickSeconds = 0.25;
constexpr double kRetrySeconds = 0.05;
constexpr double kReconnectSeconds = 0.1;
constexpr double kMostSeconds = 10'000;

// A gradient of small whole numbers, so that sums are exact in any order.
float gradient_of(std::int64_t lane, std::int64_t step, std::uint32_t slice, std::int64_t element) {
  const std::uint64_t mixed = static_cast<std::uint64_t>(lane + 1) * 0x9E3779B97F4A7C15u ^
                              static_cast<std::uint64_t>(step + 1) * 0xC2B2AE3D27D4EB4Fu ^
                              (slice * 131u + static_cast<std::uint64_t>(element) * 7u);
  return static_cast<float>(static_cast<std::int64_t>(mixed >> 33 & 15) - 7);
}

RunSpec spec_of(const SimulationOptions& options) {
  RunSpec spec;
  spec.identity = "simulated";
  spec.consistency = options.consistency;
  spec.staleness = options.staleness;
  spec.num_lanes = options.num_lanes;
  spec.num_workers = options.num_workers;
  spec.num_servers = options.num_servers;
  spec.replicas = options.replicas;
  spec.num_steps = options.num_steps;
  spec.fence_every = options.fence_every;
  spec.num_elements = options.num_slices * kElements;
  spec.optimizer.kind = "sgd";
  spec.optimizer.values = {{"weight_decay", 0.0}, {"momentum", 0.0}, {"nesterov", false}};
  for (int i = 0; i < options.num_slices; ++i) {
    optim::ParamRange range{.begin = i * kElements, .count = kElements};
    range.value_begin = range.grad_begin = 0;
    spec.slices.push_back({.begin = i * kElements, .count = kElements, .ranges = {range}});
  }
  return spec;
}

std::string bytes_of(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

// What a server's disk has after some message.
struct DiskImage {
  std::vector<std::pair<std::uint32_t, std::string>> slices;
  Term term;
  ServerId id = kNobody;
};

// Who is at the other end of a link.
struct Actor;

// A connection, from the one that has opened it.
struct Link {
  std::weak_ptr<Actor> from;
  std::weak_ptr<Actor> to;
  SessionId session = 0;
  double there_at = 0;  // the last message's arrival, each way: messages keep their order
  double back_at = 0;
  bool is_open = true;
};

struct Actor {
  enum class Kind { kScheduler, kServer, kWorker } kind = Kind::kScheduler;
  int number = 0;
  bool is_alive = true;
  double frozen_until = 0;
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<Server> server;
  bool has_disk = false;
  std::unique_ptr<Worker> worker;
  std::unique_ptr<WorkerLoop> loop;
  bool is_computing = false;
  bool is_done = false;
  std::vector<std::vector<float>> values;  // of a worker, by slice
  LaneAt computing;
  std::shared_ptr<Link> to_scheduler;
  std::map<ServerId, std::shared_ptr<Link>> to_servers;
  std::map<SessionId, std::shared_ptr<Link>> sessions;  // that others have opened to it
};

class Simulation {
 public:
  explicit Simulation(const SimulationOptions& options)
      : options_(options),
        spec_(spec_of(options)),
        device_(open_device({.threads = 1})),
        stream_(device_->open_stream()),
        random_(options.seed, RngPurpose::kInit, 0) {}
  SimulationResult run();

 private:
  using ActorPtr = std::shared_ptr<Actor>;
  using LinkPtr = std::shared_ptr<Link>;

  double uniform() { return random_.uniform(draws_++); }
  double latency() { return options_.latency * (0.5 + uniform()); }
  void at(double time, std::function<void()> what) { events_.at(time, std::move(what)); }
  double now() const { return events_.now(); }
  // What happens to an actor waits until it thaws.
  void on(const ActorPtr& actor, double time, std::function<void()> what);
  void start_scheduler();
  void start_server();
  void start_from_disk();
  void note_disk(const ActorPtr& actor);
  void start_worker(int number);
  void reach_scheduler(const ActorPtr& actor);
  void kill_scheduler();
  LinkPtr open(const ActorPtr& from, const ActorPtr& to, std::function<void()> opened);
  void send(const LinkPtr& link, bool forth, const Message& message);
  void deliver(const LinkPtr& link, bool forth, const Message& message);
  void kill(const ActorPtr& actor, double notice_seconds);
  void break_link(const LinkPtr& link, double notice_seconds);
  void step(const ActorPtr& actor);
  void flush_scheduler();
  void flush_server(const ActorPtr& actor);
  void flush_worker(const ActorPtr& actor);
  void drive(const ActorPtr& actor);
  void open_links(const ActorPtr& actor, const std::vector<ServerEntry>& servers);
  ActorPtr server_at(const std::string& address);
  WorkerHooks hooks(const ActorPtr& actor);
  void plan_faults();
  void kill_some_server();
  ActorPtr some_worker();
  void tick();
  void check_end();
  void violation(const std::string& what) {
    if (result_.violations.size() < 5) result_.violations.push_back(what);
  }

  SimulationOptions options_;
  RunSpec spec_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  RngStream random_;
  std::uint64_t draws_ = 0;
  EventQueue events_;
  ActorPtr scheduler_;
  std::string disk_;  // of the scheduler; "" nothing
  std::vector<ActorPtr> servers_;
  std::vector<ActorPtr> workers_;
  SessionId last_session_ = 0;
  int num_started_servers_ = 0;
  std::vector<DiskImage> disk_images_;  // of the disk server, after each message
  std::size_t must_have_ = 0;           // the first of them that it may be started with
  SimulationResult result_;
  std::vector<State> final_;
};

void Simulation::on(const ActorPtr& actor, double time, std::function<void()> what) {
  at(time, [this, actor, what = std::move(what)]() mutable {
    if (!actor->is_alive) return;
    if (now() < actor->frozen_until) return on(actor, actor->frozen_until, std::move(what));
    what();
    step(actor);
  });
}

void Simulation::start_scheduler() {
  scheduler_ = std::make_shared<Actor>();
  scheduler_->kind = Actor::Kind::kScheduler;
  scheduler_->scheduler = std::make_unique<Scheduler>();
  if (!disk_.empty()) scheduler_->scheduler->restore(decode_scheduler(disk_));
  flush_scheduler();
}

// Connects to the scheduler, once there is one.
void Simulation::reach_scheduler(const ActorPtr& actor) {
  if (!scheduler_->is_alive) {
    on(actor, now() + kReconnectSeconds, [this, actor] { reach_scheduler(actor); });
    return;
  }
  actor->to_scheduler = open(actor, scheduler_, [this, actor] {
    if (actor->worker) return actor->worker->connected_to_scheduler();
    send(actor->to_scheduler, true, actor->server->hello());
  });
}

// Nothing of what is on its way comes any more, in either direction.
void Simulation::kill_scheduler() {
  if (!scheduler_->is_alive) return;
  scheduler_->is_alive = false;
  for (const auto& [session, link] : scheduler_->sessions) {
    link->is_open = false;
    const ActorPtr side = link->from.lock();
    if (!side || !side->is_alive || side->to_scheduler != link) continue;
    on(side, now() + latency(), [this, side, link = link] {
      if (side->to_scheduler == link) reach_scheduler(side);
    });
  }
  at(now() + options_.restart_seconds * uniform(), [this] { start_scheduler(); });
}

void Simulation::start_server() {
  const auto actor = std::make_shared<Actor>();
  actor->kind = Actor::Kind::kServer;
  actor->number = ++num_started_servers_;
  actor->server = std::make_unique<Server>(*stream_, std::to_string(actor->number));
  actor->has_disk = actor->number == options_.disk_server;
  if (actor->has_disk) actor->server->keep_on_disk();
  servers_.push_back(actor);
  reach_scheduler(actor);
}

// After a message: what a write now would put on the disk. It is killed once.
void Simulation::note_disk(const ActorPtr& actor) {
  DiskImage image = {.slices = {}, .term = actor->server->term(), .id = actor->server->id()};
  for (std::uint32_t i = 0; i < spec_.slices.size(); ++i) {
    const SliceState* state = actor->server->slice(i);
    if (state != nullptr && state->is_loaded()) image.slices.emplace_back(i, state->encode());
  }
  disk_images_.push_back(std::move(image));
  if (actor->server->waits_for_disk()) {
    must_have_ = disk_images_.size() - 1;
    actor->server->take_changed();
    actor->server->written();
  }
  if (++result_.disk_messages != options_.killed_after) return;
  kill(actor, options_.latency * uniform() * 4);
  at(now() + options_.restart_seconds, [this] { start_from_disk(); });
}

void Simulation::start_from_disk() {
  const std::int64_t wanted = options_.killed_after - 1 - options_.written_before;
  const std::size_t from =
      std::max(must_have_, static_cast<std::size_t>(std::max<std::int64_t>(wanted, 0)));
  const DiskImage& image = disk_images_.at(from);
  const auto actor = std::make_shared<Actor>();
  actor->kind = Actor::Kind::kServer;
  actor->number = options_.disk_server;
  actor->server = std::make_unique<Server>(*stream_, std::to_string(actor->number));
  actor->has_disk = true;
  actor->server->keep_on_disk();
  if (!image.slices.empty()) {
    actor->server->restore(spec_, image.slices);
    actor->server->restore_name(image.term, image.id);
  }
  servers_.push_back(actor);
  reach_scheduler(actor);
}

void Simulation::start_worker(int number) {
  const auto actor = std::make_shared<Actor>();
  actor->kind = Actor::Kind::kWorker;
  actor->number = number;
  actor->values.assign(spec_.slices.size(), std::vector<float>(kElements));
  actor->worker = std::make_unique<Worker>(number, spec_.identity);
  if (number == 0) actor->worker->offer(spec_);
  actor->loop = std::make_unique<WorkerLoop>(*actor->worker,
                                             WorkerLoopOptions{.consistency = spec_.consistency,
                                                               .num_slices = spec_.slices.size(),
                                                               .period = options_.period},
                                             hooks(actor));
  workers_.push_back(actor);
  reach_scheduler(actor);
}

WorkerHooks Simulation::hooks(const ActorPtr& owner) {
  Actor* actor = owner.get();
  WorkerHooks hooks;
  hooks.state = [](std::uint32_t slice) {
    return Load{.slice = slice,
                .step = 0,
                .updates = 0,
                .values = bytes_of(std::vector<float>(kElements)),
                .state = {bytes_of(std::vector<float>(kElements))}};
  };
  hooks.take_values = [actor](std::uint32_t slice, std::string_view values) {
    std::memcpy(actor->values[slice].data(), values.data(), values.size());
  };
  hooks.gradient = [actor](std::uint32_t slice) {
    std::vector<float> gradient;
    for (std::int64_t i = 0; i < kElements; ++i) {
      gradient.push_back(gradient_of(actor->computing.lane, actor->computing.step, slice, i));
    }
    return bytes_of(gradient);
  };
  hooks.push_args = [](const LaneAt& /*at*/) { return PushArgs{.lr = 1, .scale = 1}; };
  hooks.decide = [](std::int64_t /*step*/, std::span<const double> /*squares*/,
                    std::span<const double> /*losses*/) { return Update{.lr = 1, .scale = 1}; };
  // One for each element and average: how many have counted shows in the end.
  hooks.average = [](std::uint32_t /*slice*/, std::string_view /*values*/) {
    return bytes_of(std::vector<float>(kElements, 1));
  };
  hooks.take_state = [this](const State& state) { final_.push_back(state); };
  return hooks;
}

Simulation::LinkPtr Simulation::open(const ActorPtr& from, const ActorPtr& to,
                                     std::function<void()> opened) {
  auto link = std::make_shared<Link>();
  link->from = from;
  link->to = to;
  link->session = ++last_session_;
  to->sessions[link->session] = link;
  on(from, now() + latency(), [link, opened = std::move(opened)] {
    if (link->is_open) opened();
  });
  return link;
}

void Simulation::send(const LinkPtr& link, bool forth, const Message& message) {
  if (!link || !link->is_open) return;
  const ActorPtr receiver = (forth ? link->to : link->from).lock();
  if (!receiver) return;
  double& last = forth ? link->there_at : link->back_at;
  last = std::max(last, now() + latency());
  on(receiver, last, [this, link, forth, message] {
    if (link->is_open) deliver(link, forth, message);
  });
}

void Simulation::deliver(const LinkPtr& link, bool forth, const Message& message) {
  const ActorPtr to = (forth ? link->to : link->from).lock();
  const ActorPtr from = (forth ? link->from : link->to).lock();
  if (to->kind == Actor::Kind::kScheduler) return to->scheduler->received(link->session, message);
  if (to->kind == Actor::Kind::kServer) {
    if (forth) {
      if (std::holds_alternative<Push>(message)) ++result_.num_pushes;
      return to->server->received(link->session, message);
    }
    if (link == to->to_scheduler) return to->server->received_from_scheduler(message);
    for (const auto& [id, other] : to->to_servers) {
      if (other == link) return to->server->received_from_server(id, message);
    }
    return;
  }
  if (link == to->to_scheduler) return to->worker->received_from_scheduler(message);
  for (const auto& [id, other] : to->to_servers) {
    if (other != link) continue;
    if (const auto* values = std::get_if<Values>(&message)) {
      ++result_.num_pulls;
      const std::int64_t stale = values->step - values->slowest;
      const bool is_bound =
          spec_.consistency == Consistency::kBsp || spec_.consistency == Consistency::kSsp;
      if (is_bound && stale > (spec_.consistency == Consistency::kSsp ? spec_.staleness : 0)) {
        violation(fmt::format("a pull for step {} was given values of step {}", values->step,
                              values->slowest));
      }
      if (spec_.consistency == Consistency::kSsp || spec_.consistency == Consistency::kAsync) {
        if (values->next < values->step) violation("an own push was not seen");
      }
    }
    return to->worker->received_from_server(id, message);
  }
}

void Simulation::break_link(const LinkPtr& link, double notice_seconds) {
  if (!link || !link->is_open) return;
  const ActorPtr from = link->from.lock();
  const ActorPtr to = link->to.lock();
  // What was sent before still comes; nothing after the notice does.
  for (const ActorPtr& side : {from, to}) {
    if (!side || !side->is_alive) continue;
    on(side, std::max({now() + notice_seconds, link->there_at, link->back_at}), [this, link, side] {
      link->is_open = false;
      side->sessions.erase(link->session);
      if (side->kind == Actor::Kind::kScheduler) side->scheduler->closed(link->session);
      if (side->kind == Actor::Kind::kServer) side->server->closed(link->session);
      std::erase_if(side->to_servers, [&](const auto& entry) { return entry.second == link; });
      if (link != side->to_scheduler) return;
      // Only its link: it comes again.
      reach_scheduler(side);
    });
  }
}

void Simulation::kill(const ActorPtr& actor, double notice_seconds) {
  actor->is_alive = false;
  break_link(actor->to_scheduler, notice_seconds);
  for (const auto& [id, link] : actor->to_servers) break_link(link, notice_seconds);
  for (const auto& [session, link] : std::map(actor->sessions)) break_link(link, notice_seconds);
}

// After anything happened to an actor: what it wants to send, and to do.
void Simulation::step(const ActorPtr& actor) {
  switch (actor->kind) {
    case Actor::Kind::kScheduler:
      return flush_scheduler();
    case Actor::Kind::kServer:
      if (actor->has_disk) note_disk(actor);
      return flush_server(actor);
    case Actor::Kind::kWorker:
      return drive(actor);
  }
}

void Simulation::flush_scheduler() {
  if (scheduler_->scheduler->take_changed()) disk_ = encode(scheduler_->scheduler->state());
  for (Scheduler::Send& out : scheduler_->scheduler->take_sends()) {
    const auto at = scheduler_->sessions.find(out.to);
    if (at == scheduler_->sessions.end()) continue;
    send(at->second, false, out.message);
    if (out.closes) break_link(at->second, 0);
  }
  for (const std::string& notice : scheduler_->scheduler->take_notices()) {
    if (notice.starts_with("refused")) continue;  // the other one of that number is not gone yet
  }
}

Simulation::ActorPtr Simulation::server_at(const std::string& address) {
  for (const ActorPtr& server : servers_) {
    if (server->is_alive && std::to_string(server->number) == address) return server;
  }
  return nullptr;
}

void Simulation::open_links(const ActorPtr& actor, const std::vector<ServerEntry>& servers) {
  for (const ServerEntry& entry : servers) {
    if (actor->to_servers.contains(entry.id)) continue;
    const ActorPtr server = server_at(entry.address);
    if (!server || server == actor) continue;
    const ServerId id = entry.id;
    actor->to_servers[id] = open(actor, server, [actor, id] {
      if (actor->worker) return actor->worker->connected(id);
      actor->server->connected(id);
    });
  }
}

void Simulation::flush_server(const ActorPtr& actor) {
  open_links(actor, actor->server->servers());
  for (Server::Send& out : actor->server->take_sends()) {
    if (out.to.kind == ServerTarget::Kind::kScheduler) {
      send(actor->to_scheduler, true, out.message);
    } else if (out.to.kind == ServerTarget::Kind::kSession) {
      const auto at = actor->sessions.find(out.to.id);
      if (at != actor->sessions.end()) send(at->second, false, out.message);
    } else if (const auto at = actor->to_servers.find(static_cast<ServerId>(out.to.id));
               at != actor->to_servers.end()) {
      if (std::holds_alternative<Copy>(out.message)) ++result_.moved_slices;
      send(at->second, true, out.message);
    }
  }
}

void Simulation::flush_worker(const ActorPtr& actor) {
  open_links(actor, actor->worker->servers());
  for (Worker::Send& out : actor->worker->take_sends()) {
    if (out.to_scheduler) {
      send(actor->to_scheduler, true, out.message);
    } else if (const auto at = actor->to_servers.find(out.server); at != actor->to_servers.end()) {
      send(at->second, true, out.message);
    }
  }
}

void Simulation::drive(const ActorPtr& actor) {
  while (!actor->is_computing && !actor->is_done) {
    const WorkerLoop::Job job = actor->loop->next();
    flush_worker(actor);
    result_.most_stale = std::max(result_.most_stale, actor->loop->most_stale());
    if (job.what == WorkerLoop::Job::What::kWait) break;
    if (job.what == WorkerLoop::Job::What::kEnd) {
      actor->is_done = true;
      if (!actor->worker->ended()->empty()) violation("ended: " + *actor->worker->ended());
      kill(actor, 0);
      break;
    }
    if (job.what == WorkerLoop::Job::What::kSave) {
      if (job.at.step < spec_.num_steps) final_.clear();
      actor->loop->saved();
      continue;
    }
    actor->is_computing = true;
    actor->computing = job.at;
    const double seconds = options_.compute_seconds
                               ? options_.compute_seconds(actor->number, job.at.step)
                               : 0.02 + 0.16 * uniform();
    on(actor, now() + seconds, [actor] {
      actor->is_computing = false;
      actor->loop->computed();
    });
  }
  flush_worker(actor);
}

Simulation::ActorPtr Simulation::some_worker() {
  std::vector<ActorPtr> alive;
  for (const ActorPtr& worker : workers_) {
    if (worker->is_alive && !worker->is_done) alive.push_back(worker);
  }
  if (alive.empty()) return nullptr;
  return alive[static_cast<std::size_t>(uniform() * static_cast<double>(alive.size()))];
}

// Kills one whose slices all have another copy, if there is one.
void Simulation::kill_some_server() {
  if (!scheduler_->is_alive) return;
  const View& view = scheduler_->scheduler->view();
  for (int attempt = 0; attempt < 8; ++attempt) {
    const auto which = static_cast<std::size_t>(uniform() * static_cast<double>(servers_.size()));
    const ActorPtr server = servers_[which];
    if (!server->is_alive) continue;
    ServerId id = kNobody;
    for (const ServerEntry& entry : view.servers) {
      if (entry.address == std::to_string(server->number)) id = entry.id;
    }
    const auto alone = [&](const std::vector<ServerId>& chain) {
      // The others of the chain must be there, too, whatever the scheduler knows of them.
      return std::none_of(chain.begin(), chain.end(), [&](ServerId other) {
        if (other == id) return false;
        for (const ServerEntry& entry : view.servers) {
          if (entry.id == other) return server_at(entry.address) != nullptr;
        }
        return false;
      });
    };
    if (std::any_of(view.chains.begin(), view.chains.end(), alone)) continue;
    kill(server, options_.latency * uniform() * 4);
    at(now() + options_.restart_seconds, [this] { start_server(); });
    return;
  }
}

void Simulation::plan_faults() {
  const double span = 0.12 * static_cast<double>(options_.num_steps);
  const auto some_time = [&] { return 0.05 + span * uniform(); };
  for (int i = 0; i < options_.worker_kills; ++i) {
    at(some_time(), [this] {
      const ActorPtr worker = some_worker();
      if (!worker) return;
      kill(worker, options_.latency * uniform() * 4);
      const int number = worker->number;
      at(now() + options_.restart_seconds, [this, number] { start_worker(number); });
    });
  }
  for (int i = 0; i < options_.server_kills; ++i) {
    at(some_time(), [this] { kill_some_server(); });
  }
  for (int i = 0; i < options_.worker_stops; ++i) {
    at(some_time(), [this] {
      const ActorPtr worker = some_worker();
      if (!worker) return;
      const double frozen = 2 * options_.lease_seconds * uniform();
      worker->frozen_until = now() + frozen;
      if (frozen > options_.lease_seconds) {
        at(now() + options_.lease_seconds, [this, worker] {
          if (worker->is_alive) break_link(worker->to_scheduler, 0);
        });
      }
    });
  }
  for (int i = 0; i < options_.worker_joins; ++i) {
    at(some_time(), [this, i] { start_worker(options_.num_workers + i); });
  }
  for (int i = 0; i < options_.server_joins; ++i) {
    at(some_time(), [this] { start_server(); });
  }
  for (int i = 0; i < options_.scheduler_kills; ++i) {
    at(some_time(), [this] { kill_scheduler(); });
  }
}

void Simulation::tick() {
  if (scheduler_->is_alive) {
    scheduler_->scheduler->ticked(now());
    flush_scheduler();
    if (scheduler_->scheduler->is_over()) return;
  }
  at(now() + kTickSeconds, [this] { tick(); });
}

// Every push has counted once: the sum says it, element by element.
void Simulation::check_end() {
  if (final_.size() < spec_.slices.size()) return violation("no state at the end");
  for (const State& state : final_) {
    std::vector<float> values(kElements);
    std::memcpy(values.data(), state.values.data(), state.values.size());
    for (std::int64_t i = 0; i < kElements; ++i) {
      float wanted = 0;
      if (spec_.consistency == Consistency::kEasgd) continue;
      for (std::int64_t step = 0; step < spec_.num_steps; ++step) {
        for (std::int64_t lane = 0; lane < spec_.num_lanes; ++lane) {
          wanted -= gradient_of(lane, step, state.slice, i);
        }
      }
      if (values[static_cast<std::size_t>(i)] != wanted && result_.lost_pushes == 0) {
        return violation(fmt::format("slice {} element {} is {}, and the pushes add up to {}",
                                     state.slice, i, values[static_cast<std::size_t>(i)], wanted));
      }
    }
  }
}

SimulationResult Simulation::run() {
  start_scheduler();
  for (int i = 0; i < options_.num_servers; ++i) start_server();
  for (int i = 0; i < options_.num_workers; ++i) start_worker(i);
  plan_faults();
  tick();
  // Servers that do not know yet that they are heads are asked again.
  std::function<void()> retry = [&] {
    for (const ActorPtr& worker : std::vector(workers_)) {
      if (!worker->is_alive || worker->is_done || now() < worker->frozen_until) continue;
      worker->worker->retry();
      drive(worker);
    }
    at(now() + kRetrySeconds, retry);
  };
  at(kRetrySeconds, retry);
  while (!scheduler_->is_alive || !scheduler_->scheduler->is_over()) {
    ATOLL_CHECK(!events_.empty() && events_.next_time() < kMostSeconds,
                "seed {}: the run does not end", options_.seed);
    ++result_.num_events;
    events_.run_next();
  }
  result_.is_finished = true;
  result_.seconds = now();
  for (const ActorPtr& server : servers_) {
    if (server->has_disk) result_.lost_pushes += server->server->lost_pushes();
  }
  check_end();
  std::map<ServerId, double> shares;
  double copies = 0;
  for (const std::vector<ServerId>& chain : scheduler_->scheduler->view().chains) {
    for (const ServerId server : chain) shares[server] += 1, copies += 1;
  }
  for (const auto& [server, count] : shares) result_.server_shares.push_back(count / copies);
  return result_;
}

}  // namespace

SimulationResult simulate(const SimulationOptions& options) {
  return Simulation(options).run();
}

}  // namespace atl::param_server
