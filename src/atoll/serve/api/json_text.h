#pragma once

// JSON as text, for answers that are written piece by piece.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace atl::serve::api {

/// Members stay in their order: what a template writes of them is what the model reads.
using Json = nlohmann::ordered_json;

/// The value on one line; bytes that are not UTF-8 become U+FFFD.
std::string to_text(const Json& json);

/// The text as a JSON string, with its quotes; bytes that are not UTF-8 become U+FFFD.
std::string json_string(std::string_view text);

/// A log-probability. JSON has no infinity, and -9999 stands for a token that cannot come.
std::string logprob_text(double logprob);

}  // namespace atl::serve::api
