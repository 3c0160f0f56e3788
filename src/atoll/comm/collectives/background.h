#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <thread>

namespace atl::comm {

/// Runs one action again and again beside the caller, on a thread that is made when the first run
/// begins. Used by one thread.
class Background {
 public:
  explicit Background(std::function<void()> action) : action_(std::move(action)) {}
  /// Waits for the last run.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  /// Begins a run; the one before must have been waited for.
  void start();
  /// Returns when no run is under way; throws what the last one threw.
  void wait();

 private:
  enum State : std::uint32_t { kIdle, kRuns, kEnds };

  void loop();

  std::function<void()> action_;
  std::atomic<std::uint32_t> state_{kIdle};
  std::exception_ptr thrown_;
  std::thread thread_;
};

}  // namespace atl::comm
