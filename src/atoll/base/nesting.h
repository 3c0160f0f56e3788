#pragma once

#include <string_view>

namespace atl {

/// How deep the brackets and braces of a JSON text nest, those in its strings left out. A text that
/// is not JSON gets some number. For files of strangers, before they are parsed: what walks a value
/// afterwards recurses, and a long row of brackets would overflow the stack.
int nesting_depth(std::string_view json);

}  // namespace atl
