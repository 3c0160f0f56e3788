#include "atoll/serve/api/api_error.h"

#include <nlohmann/json.hpp>

#include "atoll/serve/api/json_text.h"

namespace atl::serve::api {

namespace {

const char* type_of(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 429:
      return "rate_limit_error";
    case 500:
      return "server_error";
    case 503:
      return "service_unavailable_error";
    default:
      return "invalid_request_error";
  }
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

}  // namespace

ApiError field_error(const std::string& param, const std::string& message,
                     const std::string& code) {
  return {400, message, param, code};
}

std::string error_json(const ApiError& error) {
  return to_text(Json{{"error",
                       {{"message", error.what()},
                        {"type", type_of(error.status())},
                        {"param", text_or_null(error.param())},
                        {"code", text_or_null(error.code())}}}});
}

http::Response error_response(const ApiError& error) {
  constexpr const char* kRetrySeconds = "1";
  http::Response response =
      http::Response::of("application/json", error_json(error), error.status());
  if (error.status() == 401) response.add("WWW-Authenticate", "Bearer");
  const bool may_retry = error.status() == 429 || error.status() == 503;
  if (may_retry) response.add("Retry-After", kRetrySeconds);
  return response;
}

}  // namespace atl::serve::api
