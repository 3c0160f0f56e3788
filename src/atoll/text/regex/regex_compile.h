#pragma once

// What the classes over PCRE2 share; internal to them.

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "atoll/text/regex/pcre2_code.h"

namespace atl::text {

/// Compiles with UTF and Unicode properties, and what `options` adds; a line ends with a line feed.
/// Throws Error(kUser), starting with `where`, for an invalid pattern.
Pcre2Code compile_pcre2(std::string_view pattern, std::uint32_t options, std::string_view where);

/// PCRE2's words for an error code.
std::string pcre2_message(int code);

/// The text as PCRE2 takes it.
inline PCRE2_SPTR as_code_units(std::string_view text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data());
}

}  // namespace atl::text
