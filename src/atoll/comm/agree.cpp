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
#include "atoll/comm/world_state.h"

namespace atl::comm {

namespace {

constexpr std::int64_t kFine = -1;  // in place of a kind of error

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

// Lets some ranks work for longer than a collective may take: those that still do say so to those
// that wait, several times within the timeout.
class Company {
 public:
  Company(Group& group, double timeout_s) : group_(group) {
    const std::chrono::duration<double> pause(timeout_s / 4);
    thread_ = std::thread([this, pause] {
      std::unique_lock lock(mutex_);
      while (!done_.wait_for(lock, pause, [this] { return is_done_; })) {
        try {
          tell(0);
        } catch (...) {
          lost_ = std::current_exception();
          return;
        }
      }
    });
  }
  ~Company() { leave(); }
  Company(const Company&) = delete;
  Company& operator=(const Company&) = delete;

  /// Returns when no rank works any more.
  void wait_for_all() {
    leave();
    if (lost_) std::rethrow_exception(lost_);
    while (tell(1) == 0) {
    }
  }

 private:
  void leave() {
    {
      const std::lock_guard lock(mutex_);
      is_done_ = true;
    }
    done_.notify_one();
    if (thread_.joinable()) thread_.join();
  }
  // Whether all are done.
  std::int64_t tell(std::int64_t done) {
    group_.all_reduce({&done, {Dtype::kI64, {1}}}, Reduce::kMin);
    return done;
  }

  Group& group_;
  std::mutex mutex_;
  std::condition_variable done_;
  bool is_done_ = false;
  std::exception_ptr lost_;
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
    Company company(all(), options().timeout_s);
    try {
      action();
    } catch (...) {
      failure = Failure::current();
      thrown = std::current_exception();
    }
    if (!failure || !state_->broken()) company.wait_for_all();
  }
  if (failure && state_->broken()) std::rethrow_exception(thrown);  // it can tell nobody

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
