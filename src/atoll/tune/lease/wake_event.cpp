#include "atoll/tune/lease/wake_event.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"

namespace atl::tune {

WakeEvent::WakeEvent() : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!fd_.open()) throw io_error("cannot make", "an event", errno);
}

void WakeEvent::wake() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t done = ::write(fd_.get(), &one, sizeof(one));
}

void WakeEvent::clear() const {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(fd_.get(), &count, sizeof(count));
}

}  // namespace atl::tune
