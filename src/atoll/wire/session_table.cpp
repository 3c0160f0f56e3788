#include "atoll/wire/session_table.h"

#include <chrono>
#include <deque>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/base/log.h"
#include "atoll/wire/tls.h"

namespace atl::wire {

namespace {

using Clock = std::chrono::steady_clock;

// How long a session that is being closed may take to send its queue.
constexpr auto kDrainTime = std::chrono::seconds(2);
constexpr auto kSweepTime = std::chrono::milliseconds(200);

// The answer to a call that is not taken.
class Refusal : public SessionReactor {
 public:
  explicit Refusal(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

}  // namespace

// One client's stream. gRPC calls the On... functions; the queue belongs to the table's mutex.
class SessionStream : public SessionReactor {
 public:
  SessionStream(SessionTable& table, grpc::CallbackServerContext& context, CheckedPeer checked,
                SessionId id)
      : table_(table), context_(context), checked_(std::move(checked)), id_(id) {
    context.AddInitialMetadata(kGreetingKey, kGreeting);
    StartSendInitialMetadata();
  }

  void open() {
    call_handler([&] { table_.handler_->opened(id_, checked_.peer); });
    read_next();
  }

  // The following need the lock.

  bool push(std::string frame) {
    if (is_closing_) return false;
    if (queued_bytes_ + frame.size() > table_.options_.max_queue_bytes) {
      end(grpc::StatusCode::RESOURCE_EXHAUSTED,
          fmt::format("{} does not read: {} bytes are waiting for it", describe_peer(),
                      queued_bytes_ + frame.size()));
      context_.TryCancel();  // a client that does not read would not read the reason either
      return false;
    }
    queued_bytes_ += frame.size();
    queue_.push_back(std::move(frame));
    write_next();
    return true;
  }

  // Ends the stream when the queue is written; only the first reason counts.
  void end(grpc::StatusCode code, const std::string& why) {
    if (is_closing_) return;
    is_closing_ = true;
    code_ = code;
    why_ = why;
    drain_until_ = Clock::now() + kDrainTime;
    write_next();
  }

  void sweep(Clock::time_point now) {
    if (is_closing_ && now > drain_until_) context_.TryCancel();
    const std::string objection = table_.admission_.objection(checked_);
    if (is_closing_ || objection.empty()) return;
    log::warning("refused {}: {}", checked_.peer.address, objection);
    queue_.clear();
    end(grpc::StatusCode::UNAUTHENTICATED, objection);
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) {
      const std::lock_guard lock(table_.mutex_);
      end(grpc::StatusCode::OK,
          context_.IsCancelled() ? "the connection broke" : "the client ended it");
      return;
    }
    std::string frame = std::move(*incoming_.mutable_body());
    if (frame.size() > table_.options_.max_frame_bytes) {
      const std::lock_guard lock(table_.mutex_);
      end(grpc::StatusCode::INVALID_ARGUMENT,
          fmt::format("a frame of {} bytes; the most is {}", frame.size(),
                      table_.options_.max_frame_bytes));
      return;
    }
    table_.traffic_.received_bytes += frame.size();
    call_handler([&] { table_.handler_->received(id_, std::move(frame)); });
    read_next();
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(table_.mutex_);
    is_writing_ = false;
    queued_bytes_ -= writing_bytes_;
    if (ok) {
      table_.traffic_.sent_bytes += writing_bytes_;
    } else {
      queue_.clear();
      end(grpc::StatusCode::UNAVAILABLE, "the connection broke");
    }
    write_next();
  }

  void OnCancel() override {
    const std::lock_guard lock(table_.mutex_);
    queue_.clear();
    end(grpc::StatusCode::CANCELLED, "the connection broke");
    write_next();
  }

  void OnDone() override {
    {
      const std::lock_guard lock(table_.mutex_);
      table_.streams_.erase(id_);
      table_.limit_.leave(checked_.peer.name);
    }
    call_handler([&] { table_.handler_->closed(id_, why_); });
    delete this;
  }

  template <typename Call>
  void call_handler(const Call& call) {
    try {
      call();
    } catch (const std::exception& error) {
      log::error("session of {}: {}", describe_peer(), error.what());
      const std::lock_guard lock(table_.mutex_);
      end(grpc::StatusCode::INTERNAL, error.what());
    }
  }

  void read_next() {
    const std::lock_guard lock(table_.mutex_);
    if (!is_finished_) StartRead(&incoming_);
  }

  // Needs the lock. A status can only follow when no write is under way.
  void write_next() {
    if (is_writing_ || is_finished_) return;
    if (!queue_.empty()) {
      writing_bytes_ = queue_.front().size();
      outgoing_.set_body(std::move(queue_.front()));
      queue_.pop_front();
      is_writing_ = true;
      StartWrite(&outgoing_);
    } else if (is_closing_) {
      is_finished_ = true;
      Finish(grpc::Status(code_, code_ == grpc::StatusCode::OK ? "" : why_));
    }
  }

  std::string describe_peer() const {
    return checked_.peer.name.empty() ? checked_.peer.address : checked_.peer.name;
  }

  SessionTable& table_;
  grpc::CallbackServerContext& context_;
  const CheckedPeer checked_;
  const SessionId id_;
  proto::Frame incoming_, outgoing_;
  std::deque<std::string> queue_;
  std::size_t queued_bytes_ = 0;  // with the frame that is being written
  std::size_t writing_bytes_ = 0;
  bool is_writing_ = false;
  bool is_closing_ = false;
  bool is_finished_ = false;
  grpc::StatusCode code_ = grpc::StatusCode::OK;
  std::string why_;
  Clock::time_point drain_until_;
};

SessionTable::SessionTable(const ServerOptions& options, SessionHandler* handler,
                           Admission& admission, TrafficCounters& traffic)
    : options_(options),
      handler_(handler),
      admission_(admission),
      traffic_(traffic),
      limit_("sessions", options.max_sessions, options.max_sessions_per_peer),
      sweeper_([this] { sweep(); }) {}

SessionTable::~SessionTable() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  stopped_.notify_all();
  sweeper_.join();
  ATOLL_CHECK(streams_.empty(), "the server was not stopped");
}

SessionReactor* SessionTable::accept(grpc::CallbackServerContext& context) {
  CheckedPeer checked;
  grpc::Status status = admission_.admit(context, checked);
  if (!status.ok()) return new Refusal(status);
  if (handler_ == nullptr) {
    return new Refusal({grpc::StatusCode::UNIMPLEMENTED, "there are no sessions at this address"});
  }
  SessionStream* stream = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (is_stopping_) return new Refusal({grpc::StatusCode::UNAVAILABLE, "the server stops"});
    status = limit_.enter(checked.peer.name);
    if (!status.ok()) return new Refusal(status);
    stream = new SessionStream(*this, context, std::move(checked), ++last_);
    streams_.emplace(last_, stream);
  }
  stream->open();
  return stream;
}

bool SessionTable::send(SessionId session, std::string frame) {
  ATOLL_CHECK(frame.size() <= options_.max_frame_bytes, "a frame of {} bytes", frame.size());
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(session);
  return found != streams_.end() && found->second->push(std::move(frame));
}

void SessionTable::close(SessionId session, const std::string& why) {
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(session);
  if (found != streams_.end()) found->second->end(grpc::StatusCode::ABORTED, why);
}

void SessionTable::stop() {
  const std::lock_guard lock(mutex_);
  is_stopping_ = true;
  for (const auto& [id, stream] : streams_) {
    stream->end(grpc::StatusCode::UNAVAILABLE, "the server stops");
  }
}

void SessionTable::sweep_once() {
  const Clock::time_point now = Clock::now();
  for (const auto& [id, stream] : streams_) stream->sweep(now);
}

void SessionTable::sweep() {
  std::unique_lock lock(mutex_);
  while (!is_stopping_) {
    stopped_.wait_for(lock, kSweepTime);
    sweep_once();
  }
}

}  // namespace atl::wire
