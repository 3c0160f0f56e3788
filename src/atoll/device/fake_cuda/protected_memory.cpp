#include "atoll/device/fake_cuda/protected_memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/processes/memory_error.h"
#include "atoll/base/quantity.h"

namespace atl::fake_cuda {

namespace {

// What a signal handler may read: fixed places, written before the memory is given out. More
// memories than these are protected all the same, and only not named.
struct Range {
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> end{0};
};
constexpr int kMaxRanges = 1024;
Range ranges[kMaxRanges];
struct sigaction previous_action;

void on_fault(int signal, siginfo_t* info, void* context) {
  const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (const Range& range : ranges) {
    if (at < range.begin.load() || at >= range.end.load()) continue;
    constexpr char kText[] =
        "error: host code touched memory of the fake GPU; only kernels and copies may\n";
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kText, sizeof kText - 1);
    break;
  }
  if ((previous_action.sa_flags & SA_SIGINFO) != 0 && previous_action.sa_sigaction != nullptr) {
    return previous_action.sa_sigaction(signal, info, context);
  }
  ::sigaction(SIGSEGV, &previous_action, nullptr);  // the access is made again, and ends it
}

void watch_faults() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigaction(SIGSEGV, &action, &previous_action);
  });
}

}  // namespace

std::byte* map_protected(std::size_t bytes) {
  watch_faults();
  void* data = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    throw MemoryError(
        fmt::format("{} of memory are not to be had for the fake GPU", format_bytes(bytes)));
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  for (Range& range : ranges) {
    std::uintptr_t free = 0;
    if (!range.begin.compare_exchange_strong(free, begin)) continue;
    range.end = begin + bytes;
    break;
  }
  return static_cast<std::byte*>(data);
}

void unmap_protected(std::byte* data, std::size_t bytes) noexcept {
  for (Range& range : ranges) {
    if (range.begin.load() != reinterpret_cast<std::uintptr_t>(data)) continue;
    range.end = 0;
    range.begin = 0;
  }
  ::munmap(data, bytes);
}

void set_protected(std::byte* data, std::size_t bytes, bool is_protected) {
  const int status = ::mprotect(data, bytes, is_protected ? PROT_NONE : PROT_READ | PROT_WRITE);
  ATOLL_CHECK(status == 0, "mprotect of {} bytes: error {}", bytes, errno);
}

}  // namespace atl::fake_cuda
