#pragma once

// The parts of the table of filters.

#include <map>
#include <optional>
#include <string_view>

#include "atoll/text/jinja/value.h"

namespace atl::text::jinja {

/// Filters on single values, by name.
const std::map<std::string_view, Builtin>& value_filters();
/// Filters on sequences, by name.
const std::map<std::string_view, Builtin>& sequence_filters();
/// Filters that cut a sequence into several, by name.
const std::map<std::string_view, Builtin>& grouping_filters();
/// Filters that lay out or encode a text, by name.
const std::map<std::string_view, Builtin>& text_filters();

/// What `item` has at an attribute such as "a.b.0", or at an int; with None the item itself.
/// `absent` stands for what is not there.
Value value_at_path(Runtime& runtime, Value item, const Value& path,
                    const std::optional<Value>& absent);

}  // namespace atl::text::jinja
