#include "atoll/param_server/waker.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "atoll/base/error.h"

namespace atl::param_server {

Waker::Waker() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!event_) throw make_error(ErrorKind::kIo, "cannot make an event: {}", std::strerror(errno));
}

void Waker::wake() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(event_.fd(), &one, sizeof(one));
}

void Waker::clear() const {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto got = ::read(event_.fd(), &count, sizeof(count));
}

}  // namespace atl::param_server
