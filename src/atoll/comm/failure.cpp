#include "atoll/comm/failure.h"

#include <exception>
#include <new>

#include "atoll/comm/peer_error.h"
#include "atoll/device/choose_device.h"

namespace atl::comm {

Failure Failure::current() {
  try {
    throw;
  } catch (const PeerError& error) {
    return {
        .kind = error.kind(), .peer_error = true, .rank = error.rank(), .message = error.what()};
  } catch (const DeviceLostError& error) {
    return {.kind = error.kind(), .device_lost = true, .message = error.what()};
  } catch (const Error& error) {
    return {.kind = error.kind(), .message = error.what()};
  } catch (const std::bad_alloc& error) {
    return {.kind = ErrorKind::kResource, .message = "out of memory"};
  } catch (const std::exception& error) {
    return {.message = error.what()};
  } catch (...) {
    return {.message = "an exception of no known type"};
  }
}

void Failure::raise() const {
  if (peer_error) throw PeerError(rank, message);
  if (device_lost) throw DeviceLostError(message);
  throw Error(kind, message);
}

}  // namespace atl::comm
