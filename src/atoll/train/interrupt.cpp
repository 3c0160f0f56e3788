#include "atoll/train/interrupt.h"

#include <csignal>

namespace atl::train {

namespace {

// A global, because a signal handler has no other way to reach what it must tell.
volatile std::sig_atomic_t received = 0;

// The next signal of either kind finds the default action and kills.
extern "C" void note_signal(int number) {
  received = number;
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

constexpr int kSignals[2] = {SIGINT, SIGTERM};

}  // namespace

InterruptGuard::InterruptGuard() {
  received = 0;
  struct sigaction action {};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;
  for (int i = 0; i < 2; ++i) {
    sigaction(kSignals[i], nullptr, &before_[i]);
    // Whoever started us with a signal ignored (nohup, a shell's background) meant it.
    if (before_[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

InterruptGuard::~InterruptGuard() {
  for (int i = 0; i < 2; ++i) sigaction(kSignals[i], &before_[i], nullptr);
}

int InterruptGuard::signal() const {
  return received;
}

}  // namespace atl::train
