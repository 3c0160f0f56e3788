#pragma once

#include <string_view>

namespace atl::text::jinja {

/// The upper case of a letter where that is more than one character ("ß" gives "SS"), else empty.
std::u16string_view special_upper(char32_t letter);
/// The same for the title case.
std::u16string_view special_title(char32_t letter);

}  // namespace atl::text::jinja
