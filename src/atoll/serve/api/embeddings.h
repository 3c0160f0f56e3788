#pragma once

// Vectors that stand for texts.

#include <memory>
#include <vector>

#include "atoll/serve/api/fields.h"
#include "atoll/serve/api/generation.h"
#include "atoll/serve/api/open_answer.h"

namespace atl::serve::api {

/// All fields of POST /v1/embeddings.
std::vector<FieldRule> embedding_rules();

/// Hands the texts of a request to the generator; the answer goes to the asker's reply once all of
/// them are read. Returns that answer. Throws ApiError for a request that cannot be served, and
/// then has answered nothing.
std::shared_ptr<OpenAnswer> embed(const Json& body, Serving& serving, const Asker& asker);

}  // namespace atl::serve::api
