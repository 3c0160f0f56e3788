#pragma once

namespace atl::train {

/// While it lives, SIGINT and SIGTERM ask the run to stop after the current step instead of killing
/// it; a second signal of either kind kills as usual. For the whole process, however many there
/// are.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  /// The signal that asked to stop, or 0.
  int signal() const;
};

/// Asks as `signal` would, where something else says that the run is to stop: SIGPIPE where nobody
/// reads what it prints. Nothing happens while there is no guard.
void request_stop(int signal);

}  // namespace atl::train
