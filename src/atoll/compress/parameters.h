#pragma once

#include <optional>
#include <string_view>

namespace atl::compress {

/// The whole number from `low` to `high` that `text` is; nothing when it is none.
std::optional<int> whole_number(std::string_view text, int low, int high);

}  // namespace atl::compress
