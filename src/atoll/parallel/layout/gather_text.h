#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "atoll/comm/group.h"

namespace atl::parallel {

/// Every rank's text, by rank. Every rank of the group must call it; null: this rank is alone.
std::vector<std::string> gather_text(comm::Group* group, std::string_view mine);

}  // namespace atl::parallel
