#pragma once

#include <string_view>

#include "atoll/text/jinja/ast.h"

namespace atl::text::jinja {

/// Reads a template. Throws Error(kUser) naming `origin`, the line and the construct for one that
/// is malformed or uses what is not supported, whether or not the output would depend on it.
Tree parse(std::string_view source, std::string_view origin);

}  // namespace atl::text::jinja
