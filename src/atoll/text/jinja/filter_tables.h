#pragma once

// The two halves of the table of filters.

#include <map>
#include <string_view>

#include "atoll/text/jinja/value.h"

namespace atl::text::jinja {

/// Filters on single values, by name.
const std::map<std::string_view, Builtin>& value_filters();
/// Filters on sequences, by name.
const std::map<std::string_view, Builtin>& sequence_filters();

}  // namespace atl::text::jinja
