#pragma once

#include <string>
#include <vector>

#include "atoll/serve/api/fields.h"

namespace atl::serve::api {

/// What is said of a route in openapi.json.
struct RouteInfo {
  const char* method = "get";  ///< in lower case
  const char* path = "";       ///< "/v1/models/{model}"
  const char* summary = "";
  std::vector<FieldRule> rules = {};  ///< of the JSON object that a POST sends
  const char* answer_type = "application/json";
  bool needs_key = true;
};

/// The document about these routes, made of the rules that check requests.
std::string openapi_json(const std::vector<RouteInfo>& routes);

}  // namespace atl::serve::api
