#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "atoll/serve/api/format_request.h"
#include "atoll/serve/api/metrics.h"
#include "atoll/serve/api/tool_calls.h"
#include "atoll/serve/batch/generator.h"
#include "atoll/text/chat/template.h"
#include "atoll/text/tokenizer.h"

namespace atl::serve::api {

/// A model that is ready to answer.
struct ServedModel {
  std::string name;                ///< as clients call it
  Generator* generator = nullptr;  ///< outlives the service
  Tokenizer tokenizer;
  std::optional<ChatTemplate> chat = {};            ///< absent: chats are refused
  ToolCallForm tool_calls = {};                     ///< that a forced call is written in
  bool has_reasoning = false;                       ///< answers may begin with <think>...</think>
  std::vector<std::int32_t> stop_tokens = {};       ///< that end any answer
  std::vector<std::int32_t> chat_stop_tokens = {};  ///< that end what is said in a chat, too
  std::vector<std::string> adapters = {};  ///< the generator's adapters: models of their own
  std::string fingerprint = {};            ///< of weights and settings; empty: none is told
  MakeConstraint make_constraint = {};     ///< empty: no form can be asked for
};

/// What all requests share.
struct Serving {
  ServedModel model;
  RequestTimes& times;
  std::atomic<std::int64_t>& num_sequences;  ///< that are with the generator
};

}  // namespace atl::serve::api
