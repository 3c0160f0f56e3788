#pragma once

// Patterns of file names, as huggingface_hub's allow_patterns and ignore_patterns.

#include <string>
#include <string_view>
#include <vector>

namespace atl::hub {

/// Whether a path fits a pattern of Python's fnmatch: * is any text, slashes too, ? any character,
/// [abc], [a-z] and [!a] one of a set. Case matters. A pattern that ends with / means all below.
bool fits_pattern(std::string_view path, std::string_view pattern);

/// Whether a path fits one of `include` (empty: any does) and none of `exclude`.
bool is_wanted(std::string_view path, const std::vector<std::string>& include,
               const std::vector<std::string>& exclude);

}  // namespace atl::hub
