#pragma once

#include <string>
#include <string_view>

namespace atl {

/// Refuses a TOML text whose tables are within each other deeper than any settings are: more than
/// 16 parts of a key between dots, or more than 16 brackets and braces around a value. Before it is
/// parsed: the library bounds brackets alone, and destroys what it has read by recursion. Throws
/// Error(kUser) with "origin:line". Linear in the text.
void check_toml_depth(std::string_view text, const std::string& origin);

}  // namespace atl
