#pragma once

// The conversation of a row, and the tools that its chat template is to list.

#include <simdjson.h>

#include <optional>
#include <string>

#include "atoll/data/fields.h"
#include "atoll/data/jsonl/jsonl_line.h"

namespace atl::data {

/// Messages as a JSON array of objects with "role" and "content", whatever `fields` says that they
/// are called in `messages`; those of ShareGPT are known, and line.mapping then says so. Throws
/// Error(kUser) beginning with `origin` for one that is no message.
std::string conversation(const simdjson::dom::element& messages, const Fields& fields,
                         const std::string& origin, JsonlLine& line);

/// A prompt and a completion, either of which may be a list of messages instead of a text, as one
/// JSON array of messages. A text is what the user says, and what the assistant answers. Answers in
/// the prompt get "train": false. Throws as conversation().
std::string pair_conversation(const simdjson::dom::element& prompt,
                              const simdjson::dom::element& completion, const Fields& fields,
                              const std::string& origin, JsonlLine& line);

/// What a row says beside its messages.
struct RowVariables {
  std::optional<simdjson::dom::element> kwargs;     ///< "chat_template_kwargs"
  std::optional<simdjson::dom::element> tools;      ///< "tools"
  std::optional<simdjson::dom::element> functions;  ///< "functions", OpenAI's older form
};

/// The variables for the chat template as the text of a JSON object; empty for none. Tools may be a
/// list, a list of JSON texts, or a JSON text of a list; each of "functions" becomes a tool. Throws
/// Error(kUser) beginning with `origin` for what is of another type, and for both kinds at once.
std::string template_variables(const RowVariables& row, const std::string& origin);

}  // namespace atl::data
