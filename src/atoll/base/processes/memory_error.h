#pragma once

#include <string_view>

#include "atoll/base/error.h"

namespace atl {

/// Memory that is not to be had. The message says how much; what would take less is a matter of the
/// command, which adds it (cli/command.h).
class MemoryError : public Error {
 public:
  explicit MemoryError(std::string_view message) : Error(ErrorKind::kResource, message) {}
};

}  // namespace atl
