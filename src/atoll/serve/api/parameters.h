#pragma once

// What requests for a chat and for a completion have in common.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "atoll/serve/api/fields.h"
#include "atoll/serve/api/format_request.h"
#include "atoll/serve/batch/request.h"

namespace atl::serve::api {

/// How to generate, and what to tell of it.
struct Parameters {
  std::string model;                       ///< empty: the one that there is
  std::optional<std::int64_t> max_tokens;  ///< new ones; absent: the route's default
  SamplingOptions sampling;
  bool has_seed = false;  ///< without one each answer gets another
  LogitChanges changes;
  std::int64_t num_choices = 1;
  std::vector<std::string> stop;  ///< texts that end an answer and are not part of it
  std::vector<std::int32_t> stop_tokens;
  bool ignores_end = false;  ///< the model's own stop tokens do not end an answer
  int top_logprobs = -1;     ///< as GenerationRequest
  bool streams = false;
  bool includes_usage = false;  ///< of a stream: usage comes before its end
  bool returns_tokens = false;  ///< ids of prompt and answer
  std::string cache_salt;
  std::optional<FormatRequest> format;
};

/// The fields that are read into them.
const std::vector<Field<Parameters>>& parameter_fields();

/// Texts of a field that is a string or a list of strings. Throws ApiError(400).
std::vector<std::string> strings_of(const Json& value, const std::string& name);
/// Ids of tokens of a list. Throws ApiError(400).
std::vector<std::int32_t> tokens_of(const Json& value, const std::string& name);

}  // namespace atl::serve::api
