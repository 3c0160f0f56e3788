#pragma once

#include <cstddef>
#include <string_view>

namespace atl::text {

/// Columns that a terminal gives to this UTF-8 text: 2 for a wide character, 0 for one that is
/// drawn over the one before it.
std::size_t display_width(std::string_view text);

}  // namespace atl::text
