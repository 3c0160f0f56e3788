#include "atoll/comm/wait_word.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace atl::comm {

namespace {

int operation(int op, WaitWord::Among among) {
  return among == WaitWord::Among::kThreads ? op | FUTEX_PRIVATE_FLAG : op;
}

}  // namespace

void WaitWord::bump(Among among) {
  // Sequentially consistent with wait(): either a thread that falls asleep sees the new value, or
  // this thread sees that it sleeps.
  value_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
  syscall(SYS_futex, &value_, operation(FUTEX_WAKE, among), INT_MAX, nullptr, nullptr, 0);
}

bool WaitWord::wait(std::uint32_t seen, std::chrono::steady_clock::time_point deadline,
                    Among among) {
  const auto left = deadline - std::chrono::steady_clock::now();
  if (left <= left.zero()) return false;
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
  timespec timeout{};
  timeout.tv_sec = static_cast<std::time_t>(ns / 1'000'000'000);
  timeout.tv_nsec = static_cast<long>(ns % 1'000'000'000);
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &value_, operation(FUTEX_WAIT, among), seen, &timeout, nullptr, 0);
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  return true;
}

}  // namespace atl::comm
