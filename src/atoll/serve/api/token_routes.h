#pragma once

// Texts to ids and back.

#include <string>
#include <vector>

#include "atoll/serve/api/fields.h"
#include "atoll/serve/api/serving.h"

namespace atl::serve::api {

/// All fields of POST /tokenize.
std::vector<FieldRule> tokenize_rules();
/// {"tokens":[...],"count":...,"max_model_len":...} of "prompt" or "messages". Throws ApiError.
std::string tokenize(const Json& body, const ServedModel& model);

/// All fields of POST /detokenize.
std::vector<FieldRule> detokenize_rules();
/// {"prompt":"..."} of "tokens". Throws ApiError.
std::string detokenize(const Json& body, const ServedModel& model);

}  // namespace atl::serve::api
