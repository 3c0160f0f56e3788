#pragma once

// Vectors that stand for texts.

#include <vector>

#include "atoll/serve/api/fields.h"
#include "atoll/serve/api/generation.h"

namespace atl::serve::api {

/// All fields of POST /v1/embeddings.
std::vector<FieldRule> embedding_rules();

/// Hands the texts of a request to the generator; the answer goes to the asker's reply once all of
/// them are read. Throws ApiError for a request that cannot be served, and then has answered
/// nothing.
void embed(const Json& body, Serving& serving, const Asker& asker);

}  // namespace atl::serve::api
