#pragma once

#include <string>
#include <variant>
#include <vector>

#include "atoll/serve/api/parameters.h"

namespace atl::serve::api {

/// A text, or ids of tokens.
using Prompt = std::variant<std::string, std::vector<std::int32_t>>;

/// POST /v1/completions.
struct CompletionRequest : Parameters {
  std::vector<Prompt> prompts;
  bool echoes = false;  ///< the answer begins with the prompt
};

/// The JSON schema of a field that prompts_of() reads.
extern const char* const kPromptSchema;
/// The texts of such a field: a string, ids of tokens, or a list of these. Throws ApiError(400).
std::vector<Prompt> prompts_of(const Json& value, const std::string& name);

/// All fields of a request.
std::vector<FieldRule> completion_rules();

/// Reads a request. Throws ApiError(400) naming the field that is wrong.
CompletionRequest parse_completion(const Json& body);

}  // namespace atl::serve::api
