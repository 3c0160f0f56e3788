#include "atoll/serve/api/json_text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace atl::serve::api {

std::string to_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string json_string(std::string_view text) {
  return to_text(Json(text));
}

std::string logprob_text(double logprob) {
  constexpr double kNever = -9999;
  return fmt::format("{}", logprob >= kNever ? logprob : kNever);
}

}  // namespace atl::serve::api
