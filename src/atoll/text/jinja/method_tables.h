#pragma once

#include <map>
#include <string_view>

#include "atoll/text/jinja/value.h"

namespace atl::text::jinja {

/// Methods of strings, by name.
const std::map<std::string_view, Builtin>& string_methods();

}  // namespace atl::text::jinja
