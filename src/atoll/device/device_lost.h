#pragma once

#include <string_view>

#include "atoll/base/error.h"

namespace atl {

/// A device that was there does not answer any more: what it held is gone, and every call that
/// follows fails. Kind kResource.
class DeviceLostError : public Error {
 public:
  explicit DeviceLostError(std::string_view message) : Error(ErrorKind::kResource, message) {}
};

}  // namespace atl
