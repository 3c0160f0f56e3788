#include "atoll/train/interrupt.h"

#include <csignal>

namespace atl::train {

namespace {

// A global, because a signal handler has no other way to reach what it must tell.
volatile std::sig_atomic_t received = 0;

extern "C" void note_signal(int number) {
  received = number;
}

}  // namespace

InterruptGuard::InterruptGuard() {
  received = 0;
  struct sigaction action {};
  action.sa_handler = note_signal;
  // SA_RESETHAND: the next signal of this kind finds the default action and kills.
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

InterruptGuard::~InterruptGuard() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

int InterruptGuard::signal() const {
  return received;
}

}  // namespace atl::train
