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

/// Adapters that come and go while the service runs. One thread calls it.
class AdapterLoader {
 public:
  virtual ~AdapterLoader() = default;
  /// Reads an adapter and has the generator serve it under that name, in place of one that has it.
  /// Throws Error(kUser) for a path that may not be read or holds no fitting adapter, and
  /// Error(kResource) where there is no room.
  virtual void load(const std::string& name, const std::string& path) = 0;
  /// False: none has that name.
  virtual bool unload(const std::string& name) = 0;
};

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
  std::string fingerprint = {};         ///< of weights and settings; empty: none is told
  MakeConstraint make_constraint = {};  ///< empty: no form can be asked for
  /// Outlives the service; null: adapters neither come nor go.
  AdapterLoader* adapter_loader = nullptr;
};

/// What all requests share.
struct Serving {
  ServedModel model;
  RequestTimes& times;
  std::atomic<std::int64_t>& num_sequences;  ///< that are with the generator
};

}  // namespace atl::serve::api
