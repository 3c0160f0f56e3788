#include "atoll/wire/lanes.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "atoll/base/check.h"

namespace atl::wire {

namespace {

using grpc::StatusCode;

TransferEnd to_end(const LaneEnd& lane) {
  if (lane.is_damaged) return TransferEnd::kDamaged;
  switch (lane.status.error_code()) {
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

// Which of several reasons says most: what trying again will not change comes first.
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

Lanes::Lanes(const Transfer& transfer, std::vector<bool>& done, const Client& client,
             Traffic* traffic)
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

std::size_t Lanes::chunk_size(std::uint64_t chunk) const {
  const std::uint64_t offset = chunk * transfer_.chunk_bytes;
  return static_cast<std::size_t>(
      std::min<std::uint64_t>(transfer_.chunk_bytes, transfer_.bytes - offset));
}

void Lanes::asked(Lane& lane) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(lane.has_asked, true) || --num_to_ask_ > 0) return;
  }
  if (transfer_.on_asked) transfer_.on_asked();
}

void Lanes::done(std::uint64_t chunk) {
  {
    const std::lock_guard lock(mutex_);
    done_[chunk] = true;
    ++num_done_;
    moved_bytes_ += chunk_size(chunk);
    progress_ = std::chrono::steady_clock::now();
  }
  changed_.notify_all();
}

void Lanes::run_lane(Lane& lane, const std::function<LaneEnd(Lane&)>& body) {
  LaneEnd end;
  std::exception_ptr error;
  try {
    end = body(lane);
  } catch (...) {
    error = std::current_exception();
  }
  asked(lane);
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
void Lanes::cancel_all() {
  for (Lane& lane : lanes_) lane.context.TryCancel();
}

// Until all lanes have ended, by themselves or because nothing comes any more.
void Lanes::wait() {
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

TransferResult Lanes::run(const Stubs& stubs, const std::function<LaneEnd(Lane&)>& body) {
  if (transfer_.cancel.stop_requested()) return {TransferEnd::kCancelled, "cancelled"};
  const std::size_t lanes = std::min<std::size_t>(stubs.size(), missing_.size());
  for (std::size_t i = 0; i < lanes; ++i) {
    Lane& lane = lanes_.emplace_back();
    lane.stub = stubs[i];
    // Every n-th: chunks that become available one after another then flow in all lanes.
    for (std::size_t k = i; k < missing_.size(); k += lanes) lane.chunks.push_back(missing_[k]);
  }
  progress_ = std::chrono::steady_clock::now();
  num_running_ = num_to_ask_ = lanes;
  std::vector<std::jthread> threads;
  for (Lane& lane : lanes_) threads.emplace_back([this, &lane, &body] { run_lane(lane, body); });
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

TransferResult Lanes::result() {
  if (error_ != nullptr) std::rethrow_exception(error_);
  TransferResult result;
  if (num_done_ < missing_.size()) result = failure();
  result.bytes = moved_bytes_;
  return result;
}

TransferResult Lanes::failure() {
  {
    const std::lock_guard lock(mutex_);
    if (is_cancelled_) return {TransferEnd::kCancelled, "cancelled"};
    if (is_stalled_) {
      return {TransferEnd::kUnreachable,
              fmt::format("nothing of {} moved to or from {} in {} ms", transfer_.key,
                          client_.address(), transfer_.stall_timeout_ms)};
    }
  }
  const LaneEnd* worst = nullptr;
  for (const LaneEnd& lane : failures_) {
    if (worst == nullptr || weight(to_end(lane)) > weight(to_end(*worst))) worst = &lane;
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
