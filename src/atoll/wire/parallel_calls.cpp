#include "atoll/wire/parallel_calls.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "atoll/base/check.h"

namespace atl::wire {

namespace {

using grpc::StatusCode;

TransferEnd to_end(const CallEnd& call) {
  if (call.is_damaged) return TransferEnd::kDamaged;
  switch (call.status.error_code()) {
    case StatusCode::NOT_FOUND:
      return TransferEnd::kGone;
    case StatusCode::DATA_LOSS:
    case StatusCode::INTERNAL:  // what came was no HTTP/2 or no message
      return TransferEnd::kDamaged;
    case StatusCode::UNAVAILABLE:
    case StatusCode::CANCELLED:  // not by us: a server that goes away
    case StatusCode::DEADLINE_EXCEEDED:
    case StatusCode::RESOURCE_EXHAUSTED:  // others are served before us
    case StatusCode::UNKNOWN:
      return TransferEnd::kUnreachable;
    default:
      return TransferEnd::kRefused;
  }
}

// Which of several failures to report: those that a retry cannot change come first.
int weight(TransferEnd end) {
  switch (end) {
    case TransferEnd::kGone:
      return 3;
    case TransferEnd::kRefused:
      return 2;
    case TransferEnd::kDamaged:
      return 1;
    default:
      return 0;
  }
}

}  // namespace

ParallelCalls::ParallelCalls(const BlobTransfer& transfer, std::vector<bool>& done,
                             const ClientConnector& client, TrafficCounters* traffic)
    : transfer_(transfer), done_(done), client_(client), traffic_(traffic) {
  ATOLL_CHECK(transfer.chunk_bytes > 0 && transfer.chunk_bytes <= kMaxChunkBytes, "{}",
              transfer.chunk_bytes);
  const std::uint64_t chunks = num_chunks(transfer.bytes, transfer.chunk_bytes);
  if (done.empty()) done.resize(chunks, false);
  ATOLL_CHECK_EQ(done.size(), chunks);
  for (std::uint64_t i = 0; i < chunks; ++i) {
    if (!done[i]) missing_.push_back(i);
  }
}

std::size_t ParallelCalls::chunk_size(std::uint64_t chunk) const {
  const std::uint64_t offset = chunk * transfer_.chunk_bytes;
  return static_cast<std::size_t>(
      std::min<std::uint64_t>(transfer_.chunk_bytes, transfer_.bytes - offset));
}

void ParallelCalls::asked(ParallelCall& call) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(call.has_asked, true) || --num_to_ask_ > 0) return;
  }
  if (transfer_.on_asked) transfer_.on_asked();
}

void ParallelCalls::done(std::uint64_t chunk) {
  {
    const std::lock_guard lock(mutex_);
    done_[chunk] = true;
    ++num_done_;
    moved_bytes_ += chunk_size(chunk);
    progress_ = std::chrono::steady_clock::now();
  }
  changed_.notify_all();
}

void ParallelCalls::run_call(ParallelCall& call,
                             const std::function<CallEnd(ParallelCall&)>& body) {
  CallEnd end;
  std::exception_ptr error;
  try {
    end = body(call);
  } catch (...) {
    error = std::current_exception();
  }
  asked(call);
  {
    const std::lock_guard lock(mutex_);
    if (error != nullptr && error_ == nullptr) error_ = error;
    if (error != nullptr) cancel_all();
    if (!end.status.ok() || end.is_damaged) failures_.push_back(std::move(end));
    --num_running_;
  }
  changed_.notify_all();
}

// Needs the lock.
void ParallelCalls::cancel_all() {
  for (ParallelCall& call : calls_) call.context.TryCancel();
}

// Returns when all calls have ended, by themselves or because nothing has moved for too long.
void ParallelCalls::wait() {
  const auto stall = std::chrono::milliseconds(transfer_.stall_timeout_ms);
  std::unique_lock lock(mutex_);
  while (num_running_ > 0) {
    if (is_cancelled_ || is_stalled_) {
      changed_.wait(lock);
      continue;
    }
    changed_.wait_until(lock, progress_ + stall);
    if (num_running_ > 0 && std::chrono::steady_clock::now() >= progress_ + stall) {
      is_stalled_ = true;
      cancel_all();
    }
  }
}

TransferResult ParallelCalls::run(const Stubs& stubs,
                                  const std::function<CallEnd(ParallelCall&)>& body) {
  if (transfer_.cancel.stop_requested()) return {TransferEnd::kCancelled, "cancelled"};
  const std::size_t calls = std::min<std::size_t>(stubs.size(), missing_.size());
  for (std::size_t i = 0; i < calls; ++i) {
    ParallelCall& call = calls_.emplace_back();
    call.stub = stubs[i];
    // Every n-th: chunks that become available one after another then flow in all calls.
    for (std::size_t k = i; k < missing_.size(); k += calls) call.chunks.push_back(missing_[k]);
  }
  progress_ = std::chrono::steady_clock::now();
  num_running_ = num_to_ask_ = calls;
  std::vector<std::jthread> threads;
  for (ParallelCall& call : calls_)
    threads.emplace_back([this, &call, &body] { run_call(call, body); });
  const std::stop_callback on_cancel(transfer_.cancel, [this] {
    const std::lock_guard lock(mutex_);
    is_cancelled_ = true;
    cancel_all();
    changed_.notify_all();
  });
  wait();
  for (std::jthread& thread : threads) thread.join();
  return result();
}

TransferResult ParallelCalls::result() {
  if (error_ != nullptr) std::rethrow_exception(error_);
  TransferResult result;
  if (num_done_ < missing_.size()) result = failure();
  result.bytes = moved_bytes_;
  return result;
}

TransferResult ParallelCalls::failure() {
  {
    const std::lock_guard lock(mutex_);
    if (is_cancelled_) return {TransferEnd::kCancelled, "cancelled"};
    if (is_stalled_) {
      return {TransferEnd::kUnreachable,
              fmt::format("nothing of {} moved to or from {} in {} ms", transfer_.key,
                          client_.address(), transfer_.stall_timeout_ms)};
    }
  }
  const CallEnd* worst = nullptr;
  for (const CallEnd& call : failures_) {
    if (worst == nullptr || weight(to_end(call)) > weight(to_end(*worst))) worst = &call;
  }
  if (worst == nullptr) {
    return {TransferEnd::kUnreachable,
            fmt::format("{} ended {} early", client_.address(), transfer_.key)};
  }
  TransferResult result{to_end(*worst), worst->why};
  if (result.why.empty() && result.end == TransferEnd::kUnreachable && moved_bytes_ == 0) {
    ProbeResult found = client_.explain(worst->status, transfer_.cancel);
    if (transfer_.cancel.stop_requested()) return {TransferEnd::kCancelled, "cancelled"};
    if (found.is_final) result.end = TransferEnd::kRefused;
    result.why = std::move(found.why);
  }
  if (result.why.empty()) {
    result.why = fmt::format("{}: {}", client_.address(), worst->status.error_message());
  }
  return result;
}

}  // namespace atl::wire
