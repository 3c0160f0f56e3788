#include "atoll/comm/failure.h"

#include <exception>
#include <new>

#include "atoll/comm/world.h"

namespace atl::comm {

Failure Failure::current() {
  try {
    throw;
  } catch (const PeerError& error) {
    return {error.kind(), true, error.rank(), error.what()};
  } catch (const Error& error) {
    return {error.kind(), false, -1, error.what()};
  } catch (const std::bad_alloc& error) {
    return {ErrorKind::kResource, false, -1, "out of memory"};
  } catch (const std::exception& error) {
    return {ErrorKind::kInternal, false, -1, error.what()};
  } catch (...) {
    return {ErrorKind::kInternal, false, -1, "an exception of no known type"};
  }
}

void Failure::raise() const {
  if (peer_error) throw PeerError(rank, message);
  throw Error(kind, message);
}

}  // namespace atl::comm
