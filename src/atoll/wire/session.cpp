#include "atoll/wire/session.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>
#include <stop_token>
#include <thread>

#include "atoll/base/check.h"
#include "atoll/base/log.h"
#include "atoll/wire/client_connector.h"
#include "wire/wire.grpc.pb.h"

namespace atl::wire {

namespace {

using Clock = std::chrono::steady_clock;
using FrameStream = grpc::ClientReaderWriter<proto::Frame, proto::Frame>;

}  // namespace

struct Session::State {
  State(const SessionOptions& settings, Events handlers)
      : options(settings),
        events(std::move(handlers)),
        client(settings.address, settings.identity, settings.secret, settings.server_name,
               settings.connect_timeout_ms, settings.keepalive, settings.max_frame_bytes) {}

  void run();
  ProbeResult attend();
  ProbeResult converse(FrameStream& stream, grpc::ClientContext& context);
  void exchange(FrameStream& stream);
  void write(FrameStream& stream);
  bool connect(grpc::Channel& channel);
  void report(const ProbeResult& result);
  bool pause(double milliseconds);

  const SessionOptions options;
  const Events events;
  ClientConnector client;
  TrafficCounters traffic;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::string> queue;
  std::size_t queued_bytes = 0;  // with the frame that is being written
  bool is_connected = false;
  bool was_connected = false;  // since the last disconnected()
  bool is_finishing = false;
  bool is_finished = false;  // and the server has read all
  bool is_stopping = false;
  bool has_ended = false;     // the thread is done
  std::stop_source stopping;  // as is_stopping, for what does not look at that
  grpc::ClientContext* call = nullptr;
  std::string last_problem;
  std::thread thread;
};

// Waits as long, less when the session ends; returns whether it goes on.
bool Session::State::pause(double milliseconds) {
  std::unique_lock lock(mutex);
  const auto time = std::chrono::duration<double, std::milli>(milliseconds);
  return !changed.wait_for(lock, time, [&] { return is_stopping || is_finishing; });
}

void Session::State::report(const ProbeResult& result) {
  {
    const std::lock_guard lock(mutex);
    if (is_stopping || is_finishing) return;
    if (!was_connected && !result.is_final && result.why == last_problem) return;
    last_problem = result.why;
    was_connected = false;
  }
  if (events.disconnected) events.disconnected(result.why, result.is_final);
}

void Session::State::run() {
  std::minstd_rand random(std::random_device{}());
  double backoff = options.min_backoff_ms;
  for (;;) {
    const ProbeResult result = attend();
    {
      const std::lock_guard lock(mutex);
      if (was_connected) backoff = options.min_backoff_ms;
    }
    report(result);
    if (result.is_final) break;
    // Half of it is random, so that not all clients return to a restarted server at once.
    const double share = std::uniform_real_distribution<>(0.5, 1.0)(random);
    if (!pause(backoff * share)) break;
    backoff = std::min<double>(2 * backoff, options.max_backoff_ms);
  }
  const std::lock_guard lock(mutex);
  has_ended = true;
  changed.notify_all();
}

// Here the first failure counts; gRPC by itself would retry without telling.
bool Session::State::connect(grpc::Channel& channel) {
  const Clock::time_point end =
      Clock::now() + std::chrono::milliseconds(options.connect_timeout_ms);
  for (;;) {
    const grpc_connectivity_state state = channel.GetState(/*try_to_connect=*/true);
    if (state == GRPC_CHANNEL_READY) return true;
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE || Clock::now() > end) return false;
    {
      const std::lock_guard lock(mutex);
      if (is_stopping || is_finishing) return false;
    }
    channel.WaitForStateChange(state,
                               std::chrono::system_clock::now() + std::chrono::milliseconds(50));
  }
}

// One connection, from its beginning to its end.
ProbeResult Session::State::attend() {
  const std::shared_ptr<grpc::Channel> channel = client.open();
  if (channel == nullptr || !connect(*channel)) {
    {
      const std::lock_guard lock(mutex);
      if (is_stopping || is_finishing) return {};
    }
    return client.explain({grpc::StatusCode::UNAVAILABLE, "no connection in time"},
                          stopping.get_token());
  }
  const std::unique_ptr<proto::Wire::Stub> stub = proto::Wire::NewStub(channel);
  grpc::ClientContext context;
  client.introduce(context);
  {
    const std::lock_guard lock(mutex);
    if (is_stopping || is_finishing) return {};
    call = &context;
  }
  const std::unique_ptr<FrameStream> stream = stub->Attend(&context);
  ProbeResult result = converse(*stream, context);
  const std::lock_guard lock(mutex);
  call = nullptr;
  return result;
}

ProbeResult Session::State::converse(FrameStream& stream, grpc::ClientContext& context) {
  stream.WaitForInitialMetadata();
  const bool is_greeted = ClientConnector::is_greeted(context);
  const std::string objection = is_greeted ? client.objection(context) : "";
  if (!objection.empty()) context.TryCancel();
  if (is_greeted && objection.empty()) {
    exchange(stream);
  } else {
    proto::Frame frame;
    while (stream.Read(&frame)) continue;
  }
  const grpc::Status status = stream.Finish();
  if (!objection.empty()) return {objection, true};
  if (!status.ok() || !is_greeted) return client.explain(status, stopping.get_token());
  const std::lock_guard lock(mutex);
  is_finished = is_finishing && queue.empty();
  return {fmt::format("{} ended the session", client.address()), false};
}

void Session::State::exchange(FrameStream& stream) {
  {
    const std::lock_guard lock(mutex);
    is_connected = was_connected = true;
    queue.clear();
    queued_bytes = 0;
  }
  std::thread writer([&] { write(stream); });
  if (events.connected) events.connected();
  proto::Frame frame;
  while (stream.Read(&frame)) {
    traffic.received_bytes += frame.body().size();
    if (events.received) events.received(std::move(*frame.mutable_body()));
  }
  {
    const std::lock_guard lock(mutex);
    is_connected = false;
  }
  changed.notify_all();
  writer.join();
}

void Session::State::write(FrameStream& stream) {
  proto::Frame frame;
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [&] { return !is_connected || !queue.empty() || is_finishing; });
    if (!is_connected) return;
    if (queue.empty()) break;
    *frame.mutable_body() = std::move(queue.front());
    queue.pop_front();
    const std::size_t bytes = frame.body().size();
    lock.unlock();
    const bool ok = stream.Write(frame);
    lock.lock();
    if (!ok) return;
    queued_bytes -= bytes;
    traffic.sent_bytes += bytes;
  }
  lock.unlock();
  stream.WritesDone();
}

Session::Session(const SessionOptions& options, Events events)
    : state_(std::make_unique<State>(options, std::move(events))) {
  state_->thread = std::thread([this] { state_->run(); });
}

Session::~Session() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->is_stopping = true;
    state_->stopping.request_stop();
    if (state_->call != nullptr) state_->call->TryCancel();
  }
  state_->changed.notify_all();
  state_->thread.join();
}

bool Session::send(std::string frame) {
  ATOLL_CHECK(frame.size() <= state_->options.max_frame_bytes, "a frame of {} bytes", frame.size());
  {
    const std::lock_guard lock(state_->mutex);
    const bool is_full = state_->queued_bytes + frame.size() > state_->options.max_queue_bytes;
    if (!state_->is_connected || state_->is_finishing || is_full) return false;
    state_->queued_bytes += frame.size();
    state_->queue.push_back(std::move(frame));
  }
  state_->changed.notify_all();
  return true;
}

bool Session::finish(int timeout_ms) {
  std::unique_lock lock(state_->mutex);
  state_->is_finishing = true;
  state_->changed.notify_all();
  state_->changed.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                           [&] { return state_->has_ended; });
  return state_->is_finished;
}

const TrafficCounters& Session::traffic() const {
  return state_->traffic;
}

}  // namespace atl::wire
