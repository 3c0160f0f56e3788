#pragma once

#include <cstdint>
#include <string_view>

namespace atl::train {

/// While it lives, a stop signal (base/processes/stop_signals.h) asks the run to stop after the
/// current step instead of killing it. A further one within kSameWish changes nothing; SIGINT and
/// SIGTERM kill as usual after that. Signals that are ignored, or that somebody else handles, stay
/// so. For the whole process, however many guards there are.
class InterruptGuard {
 public:
  /// `plan`: what the signal leads to ("the run saves and ends after this step"), which is printed
  /// the moment it comes; empty: nothing is, unless another guard says something.
  explicit InterruptGuard(std::string_view plan = {});
  /// Once a signal has come, later ones still do not kill before kSameWish is over: what is done
  /// until the process ends is part of ending in good order.
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  /// The signal that asked to stop, or 0.
  int signal() const;
};

/// Asks as `signal` would, where something else says that the run is to stop: SIGPIPE where nobody
/// reads what it prints. Nothing happens while there is no guard.
void request_stop(int signal);

/// From now on SIGUSR1 asks this process to save and go on (run.on_signal = save), whatever guards
/// there are. `is_told`: a line says so the moment it comes.
void save_at_usr1(bool is_told);
/// How often it has asked so far.
std::int64_t num_save_requests();

}  // namespace atl::train
