#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace atl::launch {

/// Whether a backend may be called so: a small letter, then small letters, digits, '-' and '_'. Of
/// such a name a flag and a word of a line can be made.
inline bool is_backend_name(std::string_view name) {
  constexpr std::size_t kLongest = 32;
  const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
  return !name.empty() && name.size() <= kLongest && is_letter(name.front()) &&
         std::all_of(name.begin(), name.end(), [&](char c) {
           return is_letter(c) || (c >= '0' && c <= '9') || c == '-' || c == '_';
         });
}

}  // namespace atl::launch
