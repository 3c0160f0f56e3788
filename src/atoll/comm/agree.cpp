#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "atoll/comm/failure.h"
#include "atoll/comm/world.h"
#include "atoll/comm/world_state.h"

namespace atl::comm {

namespace {

constexpr std::int64_t kFine = -1;  // no error, in place of an ErrorKind

/// Each rank's kind of error, or kFine, and the length of its message.
struct Outcomes {
  std::vector<std::int64_t> values;

  std::int64_t kind(int rank) const { return values[2 * static_cast<std::size_t>(rank)]; }
  std::int64_t length(int rank) const { return values[2 * static_cast<std::size_t>(rank) + 1]; }
};

Outcomes gather_outcomes(Group& all, const std::optional<Failure>& failure) {
  const auto size = static_cast<std::size_t>(all.size());
  Outcomes outcomes{std::vector<std::int64_t>(2 * size)};
  const auto mine = 2 * static_cast<std::size_t>(all.rank());
  outcomes.values[mine] = failure ? static_cast<std::int64_t>(failure->kind) : kFine;
  outcomes.values[mine + 1] = failure ? static_cast<std::int64_t>(failure->message.size()) : 0;
  std::vector<std::int64_t> parts;
  for (std::size_t i = 0; i <= size; ++i) parts.push_back(static_cast<std::int64_t>(2 * i));
  all.all_gather({outcomes.values.data(), {Dtype::kI64, {parts.back()}}}, parts);
  return outcomes;
}

// Keeps collectives from timing out while some ranks still work: a thread of each such rank makes
// an all_reduce four times within the timeout, in which the ranks that are done wait.
class KeepAlive {
 public:
  KeepAlive(Group& group, double timeout_s) : group_(group) {
    const std::chrono::duration<double> interval(timeout_s / 4);
    thread_ = std::thread([this, interval] {
      std::unique_lock lock(mutex_);
      while (!stopped_.wait_for(lock, interval, [this] { return is_stopped_; })) {
        try {
          all_done(false);
        } catch (...) {
          error_ = std::current_exception();
          return;
        }
      }
    });
  }
  ~KeepAlive() { stop(); }
  KeepAlive(const KeepAlive&) = delete;
  KeepAlive& operator=(const KeepAlive&) = delete;

  /// Returns when no rank works any more.
  void wait_for_all() {
    stop();
    if (error_) std::rethrow_exception(error_);
    while (!all_done(true)) {
    }
  }

 private:
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      is_stopped_ = true;
    }
    stopped_.notify_one();
    if (thread_.joinable()) thread_.join();
  }
  // Tells the others whether this rank is done; returns whether all are.
  bool all_done(bool is_done) {
    std::int64_t done = is_done ? 1 : 0;
    group_.all_reduce({&done, {Dtype::kI64, {1}}}, Reduce::kMin);
    return done != 0;
  }

  Group& group_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool is_stopped_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace

void World::agree(const std::function<void()>& action) {
  state_->reports = true;
  state_->agreed_to_end = false;
  if (size() == 1) return action();
  std::optional<Failure> failure;
  std::exception_ptr thrown;
  {
    KeepAlive keep_alive(all(), options().timeout_s);
    try {
      action();
    } catch (...) {
      failure = Failure::current();
      thrown = std::current_exception();
    }
    if (!failure || !state_->broken()) keep_alive.wait_for_all();
  }
  if (failure && state_->broken()) std::rethrow_exception(thrown);  // the others cannot be told

  const Outcomes outcomes = gather_outcomes(all(), failure);
  int lowest = 0;
  while (lowest < size() && outcomes.kind(lowest) == kFine) ++lowest;
  if (lowest == size()) return;
  std::string message = failure && lowest == rank() ? failure->message : std::string();
  message.resize(static_cast<std::size_t>(outcomes.length(lowest)));
  all().broadcast({message.data(), {Dtype::kU8, {outcomes.length(lowest)}}}, lowest);
  state_->reports = lowest == rank();
  state_->agreed_to_end = true;
  if (state_->reports) std::rethrow_exception(thrown);
  throw Error(static_cast<ErrorKind>(outcomes.kind(lowest)), message);
}

}  // namespace atl::comm
