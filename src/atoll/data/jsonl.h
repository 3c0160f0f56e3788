#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "atoll/data/fields.h"

namespace atl::data {

/// What a line of a JSONL file is.
enum class JsonlKind {
  kText,        ///< {"text": ...}
  kCompletion,  ///< {"prompt": ..., "completion": ...}
  kMessages,    ///< {"messages": [...]}
};

/// A line of a JSONL file, parsed.
struct JsonlLine {
  JsonlKind kind = JsonlKind::kText;
  std::string text;            ///< the text; prompt and completion together; the array as JSON
  std::size_t completion = 0;  ///< where in `text` the completion begins
  std::int64_t number = 0;     ///< from 1
  std::size_t end = 0;         ///< the bytes of the file up to its end, that of the line included
  std::string variables;       ///< "chat_template_kwargs" of messages: a JSON object; else empty
  const char* mapping = "";    ///< of a row with another program's keys: how it is read
};

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
