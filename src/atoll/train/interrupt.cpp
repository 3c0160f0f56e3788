#include "atoll/train/interrupt.h"

#include <atomic>
#include <csignal>
#include <mutex>

namespace atl::train {

namespace {

// A global, because a signal handler has no other way to reach what it must tell. Atomic, because
// it runs on any thread and ranks that are threads ask.
std::atomic<int> received = 0;
static_assert(std::atomic<int>::is_always_lock_free, "a handler may touch no other");

// The next signal of either kind finds the default action and kills.
extern "C" void note_signal(int number) {
  received = number;
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

constexpr int kSignals[2] = {SIGINT, SIGTERM};

// Ranks that are threads of one process each have a guard: the first sets the handlers, the last
// puts back what was there.
std::mutex mutex;
int num_guards = 0;
struct sigaction before[2];

}  // namespace

InterruptGuard::InterruptGuard() {
  const std::lock_guard lock(mutex);
  if (num_guards++ > 0) return;
  received = 0;
  struct sigaction action {};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;
  for (int i = 0; i < 2; ++i) {
    sigaction(kSignals[i], nullptr, &before[i]);
    // Whoever started us with a signal ignored (nohup, a shell's background) meant it.
    if (before[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

InterruptGuard::~InterruptGuard() {
  const std::lock_guard lock(mutex);
  if (--num_guards > 0) return;
  for (int i = 0; i < 2; ++i) sigaction(kSignals[i], &before[i], nullptr);
}

int InterruptGuard::signal() const {
  return received;
}

void request_stop(int signal) {
  int none = 0;  // a signal that came before stays
  received.compare_exchange_strong(none, signal);
}

}  // namespace atl::train
