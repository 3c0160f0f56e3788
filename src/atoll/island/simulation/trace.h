#pragma once

#include <string>

#include "atoll/island/protocol/protocol.h"

namespace atl::island {

/// One line for people: what a message or a record says, for the trace of a simulated run.
std::string describe(const MessageFromIsland& message);
std::string describe(const MessageToIsland& message);
std::string describe(const LogBody& body);

}  // namespace atl::island
