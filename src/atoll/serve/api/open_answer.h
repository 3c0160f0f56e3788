#pragma once

#include "atoll/serve/api/api_error.h"

namespace atl::serve::api {

/// An answer that is under way. Any thread may call it.
class OpenAnswer {
 public:
  virtual ~OpenAnswer() = default;
  /// The answer is an error, or a stream ends with it, and all its sequences are cancelled. Nothing
  /// where it has ended already.
  virtual void refuse(const ApiError& error) = 0;
  /// Sends a comment where nothing was sent since the last call, so that nobody on the way takes
  /// the silence for an end; nothing where the answer is told as a whole.
  virtual void ping() {}
};

}  // namespace atl::serve::api
