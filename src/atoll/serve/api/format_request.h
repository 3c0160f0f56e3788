#pragma once

// The form that a client wants an answer to have.

#include <functional>
#include <memory>
#include <string>

#include "atoll/serve/batch/request.h"

namespace atl::serve::api {

/// What an answer must look like.
struct FormatRequest {
  /// What `text` is.
  enum class Kind {
    kJsonObject,  ///< nothing: any JSON object is an answer
    kJsonSchema,  ///< a JSON schema
    kGrammar,     ///< a grammar
    kRegex,       ///< a regular expression that the whole answer matches
  };
  Kind kind = Kind::kJsonObject;
  std::string text;
};

/// Makes what keeps an answer in its form; called once for each answer, on any thread. Throws
/// Error(kUser) saying what of the form cannot be kept.
using MakeConstraint = std::function<std::unique_ptr<TokenConstraint>(const FormatRequest&)>;

}  // namespace atl::serve::api
