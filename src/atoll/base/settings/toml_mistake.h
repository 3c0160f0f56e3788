#pragma once

#include <string>
#include <string_view>

namespace atl {

/// What to write instead of a line that is no TOML, where it shows what was meant: a text without
/// quotes, True, None, 1,000, `key: value`. Empty where it does not.
std::string advice_for_toml(std::string_view line);

}  // namespace atl
