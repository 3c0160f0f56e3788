#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "atoll/data/fields.h"
#include "atoll/data/jsonl/jsonl_line.h"

namespace atl::data {

/// Calls fn for each line of a JSONL file that is not blank. `fields` says what the keys are
/// called, and whether prompt and completion are a conversation; without them rows of Alpaca and
/// ShareGPT are read too. A key that is null counts as absent; other keys than those of JsonlKind
/// are not looked at, but "chat_template_kwargs" of messages, which go to the template, and "tools"
/// and "functions", which would have to be rendered and are refused. Throws Error(kUser) naming
/// `path` and the line for one that is not JSON, not UTF-8, not an object, of several kinds or
/// none, or that lacks a field or has one twice or of another type.
void for_each_jsonl_line(std::string_view content, const std::string& path,
                         const std::function<void(const JsonlLine&)>& fn,
                         const Fields& fields = {});

}  // namespace atl::data
