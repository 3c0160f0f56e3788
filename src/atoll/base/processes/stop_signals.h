#pragma once

// The signals that ask a process to end in good order, and which of several is a new wish.

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <string>

namespace atl {

/// What people, terminals and schedulers send: Slurm's --signal is often SIGUSR1 or SIGUSR2.
inline constexpr std::array<int, 5> kStopSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

/// For so long a further signal says the same as the first: schedulers, wrappers and process groups
/// send each their copy.
inline constexpr std::chrono::seconds kSameWish{5};

/// "Ctrl-C", "SIGTERM", ...
const char* stop_signal_name(int signal);

/// Whether whoever started this process had it ignored, as nohup does.
bool is_ignored(int signal);

/// Whether the exit code is that of a process which a stop signal has ended, or SIGPIPE: nobody
/// reads its output any more.
bool is_stop_code(int exit_code);

/// Judges the signals of one process as they arrive. May be used in a signal handler, by several
/// threads.
class StopWishes {
 public:
  enum class Wish : std::uint8_t {
    kStop,     ///< the first
    kNothing,  ///< said before
    kNow,      ///< SIGINT or SIGTERM again, later: at once, whatever is lost
  };
  using Clock = std::chrono::steady_clock;

  explicit StopWishes(Clock::duration same_wish = kSameWish) : same_wish_(same_wish) {}

  /// Judges one that arrives at `now`.
  Wish take(int signal, Clock::time_point now);
  /// None has come.
  void reset();

 private:
  const Clock::duration same_wish_;
  std::atomic<bool> has_come_ = false;
  // When the first SIGINT or SIGTERM came, of the clock; 0: none has.
  std::atomic<Clock::rep> asked_at_ = 0;
  static_assert(std::atomic<Clock::rep>::is_always_lock_free, "a handler may touch no other");
};

}  // namespace atl
