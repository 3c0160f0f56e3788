// Streams and events as a CPU has them: what is queued is done at once.

#include <cstring>

#include "atoll/base/check.h"
#include "atoll/device/device.h"

namespace atl {

std::unique_ptr<Stream> Device::open_stream() {
  return std::make_unique<Stream>(*this);
}

std::unique_ptr<Event> Device::make_event() {
  return std::make_unique<Event>();
}

void Device::copy_now(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);  // of nothing, pointers may be null
}

void Stream::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void Stream::fill_zero(void* data, std::size_t bytes) {
  if (bytes > 0) std::memset(data, 0, bytes);
}

void Stream::wait(const Event& /*event*/) {}

void Event::record(Stream& /*stream*/) {
  reached_ = std::chrono::steady_clock::now();
}

double Event::seconds_since(const Event& earlier) const {
  ATOLL_CHECK(reached_ && earlier.reached_, "an event has recorded no point");
  return std::chrono::duration<double>(*reached_ - *earlier.reached_).count();
}

}  // namespace atl
