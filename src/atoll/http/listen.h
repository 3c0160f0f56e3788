#pragma once

#include <string>

#include "atoll/base/processes/process.h"

namespace atl::http {

/// A socket that listens at an address of this machine, without blocking; `port` 0 becomes the one
/// that the system chose. Throws Error(kUser) naming the address when it is in use or not here.
Fd listen_at(const std::string& host, int& port);

}  // namespace atl::http
