#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace atl::data {

/// What a line of a JSONL file is.
enum class JsonlKind {
  kText,        ///< {"text": ...}
  kCompletion,  ///< {"prompt": ..., "completion": ...}
  kMessages,    ///< {"messages": [...]}
};

/// A row of a file, parsed: a line of a JSONL file, say.
struct JsonlLine {
  JsonlKind kind = JsonlKind::kText;
  std::string text;            ///< the text; prompt and completion together; the array as JSON
  std::size_t completion = 0;  ///< where in `text` the completion begins
  std::int64_t number = 0;     ///< from 1
  const char* unit = "line";   ///< what is counted: lines, rows of a table, samples of an archive
  std::size_t end = 0;         ///< the bytes of the file up to its end, that of the line included
  std::string variables;       ///< "chat_template_kwargs" of messages: a JSON object; else empty
  const char* mapping = "";    ///< of a row with another program's keys: how it is read

  /// "a.jsonl line 7": for messages.
  std::string place(const std::string& path) const {
    return path + " " + unit + " " + std::to_string(number);
  }
};

}  // namespace atl::data
