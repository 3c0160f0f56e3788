#include "atoll/train/progress/interrupt.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <list>
#include <mutex>
#include <string>

#include "atoll/base/processes/stop_signals.h"
#include "atoll/base/terminal.h"

namespace atl::train {

namespace {

using Wish = StopWishes::Wish;

// Globals, because a signal handler has no other way to reach what it must tell. Atomic, because
// it runs on any thread and ranks that are threads ask.
std::atomic<int> received = 0;
std::atomic<std::int64_t> save_requests = 0;
StopWishes wishes;
static_assert(std::atomic<int>::is_always_lock_free, "a handler may touch no other");

// What a handler prints, whole lines made beforehand: it may not format.
struct Notices {
  std::array<std::array<char, 256>, NSIG> first = {};
  std::array<char, 256> again = {};
};
std::atomic<const Notices*> notices = nullptr;
std::array<char, 256> save_notice = {};

template <std::size_t N>
void set_text(std::array<char, N>& text, const std::string& line) {
  text.fill('\0');
  line.copy(text.data(), N - 1);
}

// On a terminal the bar of progress makes way.
std::string info_line(const std::string& words) {
  return fmt::format("{}info: {}\n", terminal_columns(STDERR_FILENO) > 0 ? "\r\x1b[K" : "", words);
}

template <std::size_t N>
void say(const std::array<char, N>& text) {
  const std::size_t size = ::strnlen(text.data(), N);
  if (size > 0 && ::write(STDERR_FILENO, text.data(), size) < 0) return;
}

extern "C" void note_signal(int number) {
  const int before = errno;
  const Notices* const told = notices;
  switch (wishes.take(number, StopWishes::Clock::now())) {
    case Wish::kStop:
      if (told != nullptr) say(told->first[static_cast<std::size_t>(number)]);
      received = number;  // last: whoever sees it prints after the notice
      break;
    case Wish::kNothing:
      if (told != nullptr && number == SIGINT) say(told->again);
      break;
    case Wish::kNow:  // it is delivered once more when this returns
      std::signal(number, SIG_DFL);
      ::kill(::getpid(), number);
      break;
  }
  errno = before;
}

extern "C" void note_save(int /*number*/) {
  const int before = errno;
  ++save_requests;
  say(save_notice);
  errno = before;
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigaction(signal, &action, nullptr);
}

bool is_handled_by(int signal, void (*handler)(int)) {
  struct sigaction now {};
  return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == handler;
}

// Ranks that are threads of one process each have a guard: the first sets the handlers, the last
// takes them away.
std::mutex mutex;
int num_guards = 0;

// A handler may still read what was made before, so that is kept.
void prepare_notices(std::string_view plan) {
  static std::list<Notices> made;
  Notices& now = made.emplace_back();
  for (const int signal : kStopSignals) {
    set_text(now.first[static_cast<std::size_t>(signal)],
             info_line(fmt::format("{}: {}; Ctrl-C after {} s or more ends it at once, and what is "
                                   "not saved is lost",
                                   stop_signal_name(signal), plan, kSameWish.count())));
  }
  set_text(now.again, info_line(fmt::format("Ctrl-C: {}, as asked", plan)));
  notices = &now;
}

}  // namespace

InterruptGuard::InterruptGuard(std::string_view plan) {
  const std::lock_guard lock(mutex);
  if (num_guards == 0) notices = nullptr;
  if (!plan.empty()) prepare_notices(plan);
  if (num_guards++ > 0) return;
  received = 0;
  wishes.reset();
  for (const int signal : kStopSignals) {
    // Whoever started us with a signal ignored (nohup, a shell's background) meant it.
    if (is_handled_by(signal, SIG_DFL)) handle(signal, note_signal);
  }
}

InterruptGuard::~InterruptGuard() {
  const std::lock_guard lock(mutex);
  const bool has_come = received != 0 && received != SIGPIPE;
  if (--num_guards > 0 || has_come) return;
  for (const int signal : kStopSignals) {
    if (is_handled_by(signal, note_signal)) handle(signal, SIG_DFL);
  }
}

int InterruptGuard::signal() const {
  return received;
}

void request_stop(int signal) {
  int none = 0;  // a signal that came before stays
  received.compare_exchange_strong(none, signal);
}

void save_at_usr1(bool is_told) {
  if (is_ignored(SIGUSR1)) return;
  if (is_told) {
    set_text(save_notice, info_line("SIGUSR1: the run saves after this step and goes on"));
  }
  handle(SIGUSR1, note_save);
}

std::int64_t num_save_requests() {
  return save_requests;
}

}  // namespace atl::train
