#pragma once

#include <string>

#include "atoll/base/error.h"

namespace atl::comm {

/// What a collective ended with, as data: threads that share one exception object race on it.
struct Failure {
  ErrorKind kind = ErrorKind::kInternal;
  bool peer_error = false;
  bool device_lost = false;
  int rank = -1;  ///< of a PeerError
  std::string message = {};

  /// Of the exception that is being handled.
  static Failure current();
  /// Throws it as a PeerError, a DeviceLostError or an Error.
  [[noreturn]] void raise() const;
};

}  // namespace atl::comm
