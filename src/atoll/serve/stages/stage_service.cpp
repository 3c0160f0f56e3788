#include "atoll/serve/stages/stage_service.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/serve/batch/step_choices.h"
#include "atoll/wire/server.h"
#include "atoll/wire/session.h"

namespace atl::serve::stages {

using Clock = std::chrono::steady_clock;
using wire::SessionId;

namespace {

bool are_same_layers(const Assignment& a, const Assignment& b) {
  return a.weights == b.weights && a.first_layer == b.first_layer && a.end_layer == b.end_layer &&
         a.room.max_positions == b.room.max_positions && a.room.max_rows == b.room.max_rows &&
         a.room.num_blocks == b.room.num_blocks;
}

}  // namespace

// Frames come by gRPC's threads, which answer what costs nothing. All else is done by one thread in
// the order in which it came; that thread alone has the model and the link to the next stage.
class StageService::State final : public wire::SessionHandler {
 public:
  explicit State(StageOptions options)
      : options_(std::move(options)),
        server_({.listen = options_.listen,
                 .identity = options_.identity,
                 .max_frame_bytes = kMaxFrameBytes,
                 .max_queue_bytes = kMaxQueueBytes},
                this, nullptr),
        thread_([this] { run(); }) {}
  ~State() override {
    server_.stop();
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
    link_.reset();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  std::string address() const { return server_.address(); }
  std::int64_t num_steps() const { return num_steps_; }

  void opened(SessionId session, const wire::Peer& peer) override {
    const std::lock_guard lock(mutex_);
    peers_[session] = peer.name.empty() ? peer.address : peer.name;
  }
  void received(SessionId session, std::string frame) override {
    try {
      take(session, std::move(frame));
    } catch (const std::exception& error) {
      server_.close(session, error.what());
    }
  }
  void closed(SessionId session, const std::string& why) override {
    const std::lock_guard lock(mutex_);
    peers_.erase(session);
    hellos_.erase(session);
    if (session != control_) return;
    log::info("the server has left: {}", why);
    control_ = 0;
    epoch_ = 0;
    jobs_.emplace_back([this] { link_.reset(); });
    changed_.notify_all();
  }

 private:
  void take(SessionId session, std::string frame);
  void take_assignment(SessionId session, const std::string& frame);
  std::string objection(const Assignment& assignment) const;
  void later(std::function<void()> job);
  void run();
  void load(const Assignment& assignment);
  void connect(const Assignment& assignment);
  void take_link_frame(std::uint64_t epoch, const std::string& frame);
  void lose_link(std::uint64_t epoch, const std::string& why, bool is_final);
  void welcome();
  void report_ready();
  void compute(const std::string& frame);
  void compute(StepMessage message);
  void tell_server(std::uint64_t epoch, std::string frame);
  bool is_current(std::uint64_t epoch) const {
    const std::lock_guard lock(mutex_);
    return epoch == epoch_;
  }

  const StageOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<SessionId, std::string> peers_;
  std::map<SessionId, std::uint64_t> hellos_;  // stages before this one, and their epochs
  SessionId control_ = 0;                      // the server's; 0: there is none
  std::uint64_t server_number_ = 0;            // Assignment::server
  std::uint64_t epoch_ = 0;
  std::deque<std::function<void()>> jobs_;
  bool ends_ = false;
  std::atomic<std::int64_t> num_steps_ = 0;

  // Of the thread alone.
  Assignment assignment_;  // that model_ was read for
  std::unique_ptr<StepModel> model_;
  std::unique_ptr<StepChoices> choices_;
  std::uint64_t loaded_epoch_ = 0;
  std::unique_ptr<wire::Session> link_;  // to the next stage
  bool link_is_up_ = false;

  wire::Server server_;
  std::thread thread_;
};

void StageService::State::take(SessionId session, std::string frame) {
  switch (kind_of(frame)) {
    case Kind::kAssign:
      return take_assignment(session, frame);
    case Kind::kPing:
      server_.send(session, encode(Kind::kPong, decode<Beat>(frame)));
      return;
    case Kind::kHello: {
      const auto greeting = decode<Greeting>(frame);
      {
        const std::lock_guard lock(mutex_);
        hellos_[session] = greeting.epoch;
      }
      return later([this] { welcome(); });
    }
    case Kind::kStep:
      return later([this, frame = std::move(frame)] { compute(frame); });
    default:
      throw damaged_error("a stage does not expect message {}", static_cast<int>(frame.front()));
  }
}

void StageService::State::take_assignment(SessionId session, const std::string& frame) {
  const auto refuse = [&](const std::string& why) {
    log::warning("a server is refused: {}", why);
    server_.send(session, encode(Kind::kRefused, Trouble{.why = why}));
  };
  const std::uint32_t protocol = protocol_of(frame);
  if (protocol != kProtocol) {
    return refuse(fmt::format(
        "it speaks version {} of the protocol between stages, and the server version {}; install "
        "the same atoll on both",
        kProtocol, protocol));
  }
  const auto assignment = decode<Assignment>(frame);
  if (const std::string why = objection(assignment); !why.empty()) return refuse(why);
  std::string other;
  {
    const std::lock_guard lock(mutex_);
    other = peers_[control_ == 0 ? session : control_];
    // A server comes back by another session where it has lost one that this machine still has.
    if (control_ == 0 || control_ == session || server_number_ == assignment.server) {
      control_ = session;
      server_number_ = assignment.server;
      epoch_ = assignment.epoch;
      jobs_.emplace_back([this, assignment] { load(assignment); });
      changed_.notify_all();
      return;
    }
  }
  refuse(fmt::format("it is in use by another server ({}); end that one, or name another stage",
                     other));
}

std::string StageService::State::objection(const Assignment& assignment) const {
  if (assignment.model != options_.model) {
    return fmt::format(
        "it has another model (identity {}) than the server ({}); give both the same files",
        options_.model, assignment.model);
  }
  const nn::ModelConfig& config = options_.config;
  const StepRoom& room = assignment.room;
  const bool fits = assignment.first_layer >= 0 && assignment.end_layer > assignment.first_layer &&
                    assignment.end_layer <= config.num_layers && room.max_positions >= 1 &&
                    room.max_positions <= config.max_positions && room.max_rows >= 1 &&
                    room.num_blocks >= 1 && assignment.vocab_size >= 1 &&
                    assignment.vocab_size <= config.vocab_size;
  return fits ? "" : "the server asks for layers or positions that the model has not";
}

void StageService::State::later(std::function<void()> job) {
  const std::lock_guard lock(mutex_);
  jobs_.push_back(std::move(job));
  changed_.notify_all();
}

void StageService::State::run() {
  for (;;) {
    std::function<void()> job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return ends_ || !jobs_.empty(); });
      if (ends_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    try {
      job();
    } catch (const std::exception& error) {
      log::error("stage: {}", error.what());
    }
  }
}

void StageService::State::tell_server(std::uint64_t epoch, std::string frame) {
  SessionId control = 0;
  {
    const std::lock_guard lock(mutex_);
    if (epoch != epoch_) return;
    control = control_;
  }
  if (control != 0) server_.send(control, std::move(frame));
}

void StageService::State::load(const Assignment& assignment) {
  if (!is_current(assignment.epoch)) return;
  link_.reset();
  link_is_up_ = false;
  choices_.reset();
  if (model_ == nullptr || !are_same_layers(assignment, assignment_)) {
    model_.reset();
    log::info("reading layers {} to {}", assignment.first_layer, assignment.end_layer - 1);
    try {
      model_ = options_.open(assignment);
    } catch (const std::exception& error) {
      log::error("{}", error.what());
      tell_server(assignment.epoch, encode(Kind::kRefused, Trouble{.why = error.what()}));
      return;
    }
  }
  if (model_->has_head()) {
    choices_ = std::make_unique<StepChoices>(*model_, assignment.vocab_size);
  }
  assignment_ = assignment;
  loaded_epoch_ = assignment.epoch;
  if (!assignment.next.empty()) connect(assignment);
  welcome();
  report_ready();
}

// The session's thread only puts jobs in the queue: link_ is set when the first of them runs.
void StageService::State::connect(const Assignment& assignment) {
  const std::uint64_t epoch = assignment.epoch;
  constexpr int kMaxBackoffMs = 1000;
  link_ = std::make_unique<wire::Session>(
      wire::SessionOptions{.address = assignment.next,
                           .identity = options_.identity,
                           .max_frame_bytes = kMaxFrameBytes,
                           .max_queue_bytes = kMaxQueueBytes,
                           .max_backoff_ms = kMaxBackoffMs},
      wire::Session::Events{
          .connected =
              [this, epoch] {
                later([this, epoch] {
                  if (link_ == nullptr || loaded_epoch_ != epoch) return;
                  link_->send(encode(Kind::kHello, Greeting{epoch}));
                });
              },
          .received =
              [this, epoch](std::string frame) {
                later([this, epoch, frame = std::move(frame)] { take_link_frame(epoch, frame); });
              },
          .disconnected =
              [this, epoch](const std::string& why, bool is_final) {
                later([this, epoch, why, is_final] { lose_link(epoch, why, is_final); });
              }});
}

void StageService::State::take_link_frame(std::uint64_t epoch, const std::string& frame) {
  if (kind_of(frame) != Kind::kWelcome || decode<Greeting>(frame).epoch != epoch) return;
  if (loaded_epoch_ != epoch) return;
  link_is_up_ = true;
  report_ready();
}

void StageService::State::lose_link(std::uint64_t epoch, const std::string& why, bool is_final) {
  if (loaded_epoch_ != epoch) return;
  const bool was_up = std::exchange(link_is_up_, false);
  const std::string line = fmt::format("no link to the next stage {}: {}", assignment_.next, why);
  tell_server(epoch, encode(Kind::kTrouble, Trouble{epoch, line, was_up || is_final}));
}

// A stage before this one waits until this one has been told of the same epoch, and has its layers.
void StageService::State::welcome() {
  std::vector<SessionId> sessions;
  {
    const std::lock_guard lock(mutex_);
    if (loaded_epoch_ != epoch_ || epoch_ == 0) return;
    for (const auto& [session, epoch] : hellos_) {
      if (epoch == epoch_) sessions.push_back(session);
    }
    for (const SessionId session : sessions) hellos_.erase(session);
  }
  for (const SessionId session : sessions) {
    server_.send(session, encode(Kind::kWelcome, Greeting{loaded_epoch_}));
  }
}

void StageService::State::report_ready() {
  if (!assignment_.next.empty() && !link_is_up_) return;
  const Ready ready = {loaded_epoch_, static_cast<std::uint64_t>(model_->bytes_per_step())};
  tell_server(loaded_epoch_, encode(Kind::kReady, ready));
}

void StageService::State::compute(const std::string& frame) {
  auto message = decode<StepMessage>(frame);
  if (message.epoch != loaded_epoch_ || !is_current(message.epoch)) return;
  const std::uint64_t epoch = message.epoch, number = message.number;
  try {
    compute(std::move(message));
  } catch (const std::exception& error) {
    log::error("step {}: {}", number, error.what());
    tell_server(epoch, encode(Kind::kResult, ResultMessage{epoch, number, error.what()}));
  }
}

void StageService::State::compute(StepMessage message) {
  const Clock::time_point start = Clock::now();
  ReceivedStep step(std::move(message), options_.config, assignment_.room, assignment_.vocab_size,
                    assignment_.first_layer > 0);
  const auto seconds = [start] {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  if (choices_ == nullptr) {
    std::vector<float> hidden = model_->pass_on(model_pieces(step.pieces()), step.message().hidden);
    StepMessage next = step.take_message();
    next.hidden = std::move(hidden);
    next.seconds.push_back(seconds());
    ++num_steps_;
    if (!link_is_up_ || link_->send(encode(Kind::kStep, next))) return;  // else lose_link() tells
    tell_server(
        next.epoch,
        encode(Kind::kTrouble,
               Trouble{next.epoch,
                       fmt::format("the next stage {} does not keep up", assignment_.next), true}));
    return;
  }
  ResultMessage result = {step.message().epoch, step.message().number, "",
                          choices_->take(step.pieces(), step.message().hidden),
                          step.message().seconds};
  result.seconds.push_back(seconds());
  ++num_steps_;
  tell_server(result.epoch, encode(Kind::kResult, result));
}

StageService::StageService(StageOptions options)
    : state_(std::make_unique<State>(std::move(options))) {}

StageService::~StageService() = default;

std::string StageService::address() const {
  return state_->address();
}

std::int64_t StageService::num_steps() const {
  return state_->num_steps();
}

}  // namespace atl::serve::stages
