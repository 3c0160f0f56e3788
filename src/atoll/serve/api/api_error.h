#pragma once

#include <stdexcept>
#include <string>

#include "atoll/http/response.h"

namespace atl::serve::api {

/// Why a request is not served, as OpenAI's clients read it. Ends the handling of one request.
class ApiError : public std::runtime_error {
 public:
  /// `param`: the field that is wrong, "stream_options.include_usage"; empty: none. `code`: one
  /// word for programs, "unknown_parameter"; empty: none.
  ApiError(int status, const std::string& message, std::string param = "", std::string code = "")
      : std::runtime_error(message),
        status_(status),
        param_(std::move(param)),
        code_(std::move(code)) {}

  int status() const { return status_; }
  const std::string& param() const { return param_; }
  const std::string& code() const { return code_; }

 private:
  int status_;
  std::string param_, code_;
};

/// Status 400 for a field.
ApiError field_error(const std::string& param, const std::string& message,
                     const std::string& code = "invalid_value");

/// {"error":{"message":...,"type":...,"param":...,"code":...}}
std::string error_json(const ApiError& error);

/// The same as an answer. 401 says how to show a key, 429 and 503 when to come again.
http::Response error_response(const ApiError& error);

}  // namespace atl::serve::api
