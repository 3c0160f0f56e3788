#pragma once

#include <string>
#include <utility>
#include <vector>

#include "atoll/island/protocol/protocol.h"

namespace atl::island {

/// RunIdentity::settings of these keys and values: one text, "key = value; key = value".
std::string settings_text(const std::vector<std::pair<std::string, std::string>>& settings);

/// Where two such texts differ, for people: "outer.lr is 0.7 there and 0.5 in the run", of at most
/// three keys, and how many more; "" where they are the same.
std::string settings_difference(const std::string& theirs, const std::string& ours);

}  // namespace atl::island
