#pragma once

#include <string>
#include <vector>

#include "atoll/serve/api/parameters.h"
#include "atoll/text/chat/conversation.h"

namespace atl::serve::api {

/// POST /v1/chat/completions.
struct ChatRequest : Parameters {
  std::vector<ChatMessage> messages;
  std::string variables;                ///< for the template, as ChatOptions::variables
  std::vector<std::string> tool_names;  ///< that the model may call; empty: none
  bool has_one_call = false;            ///< an answer ends behind its first call of a tool
  /// The tools of which the answer has to call one, as the list "tools" of
  /// grammar::tool_call_grammar(); empty: it need not.
  std::string forced_tools;
  bool splits_reasoning = true;  ///< what was thought is told apart from the answer
};

/// All fields of a request.
std::vector<FieldRule> chat_rules();

/// Reads a request. Throws ApiError(400) naming the field that is wrong.
ChatRequest parse_chat(const Json& body);

/// Reads "messages". Throws ApiError(400).
std::vector<ChatMessage> parse_chat_messages(const Json& messages);

}  // namespace atl::serve::api
