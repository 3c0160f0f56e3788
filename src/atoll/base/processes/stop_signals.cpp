#include "atoll/base/processes/stop_signals.h"

#include <algorithm>

namespace atl {

const char* stop_signal_name(int signal) {
  switch (signal) {
    case SIGINT:
      return "Ctrl-C";
    case SIGTERM:
      return "SIGTERM";
    case SIGHUP:
      return "SIGHUP";
    case SIGUSR1:
      return "SIGUSR1";
    case SIGUSR2:
      return "SIGUSR2";
    default:
      return "a signal";
  }
}

bool is_ignored(int signal) {
  struct sigaction now {};
  return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

bool is_stop_code(int exit_code) {
  const int signal = exit_code - 128;
  return signal == SIGPIPE ||
         std::find(kStopSignals.begin(), kStopSignals.end(), signal) != kStopSignals.end();
}

StopWishes::Wish StopWishes::take(int signal, Clock::time_point now) {
  const bool is_first = !has_come_.exchange(true);
  // A terminal that is closed, or a scheduler's warning before its SIGTERM, is no impatience.
  const bool is_urgent = signal == SIGINT || signal == SIGTERM;
  Clock::rep asked_at = 0;
  const Clock::rep time = now.time_since_epoch().count();
  const bool is_again = is_urgent && !asked_at_.compare_exchange_strong(asked_at, time);
  if (is_first) return Wish::kStop;
  return is_again && Clock::duration(time - asked_at) >= same_wish_ ? Wish::kNow : Wish::kNothing;
}

void StopWishes::reset() {
  has_come_ = false;
  asked_at_ = 0;
}

}  // namespace atl
