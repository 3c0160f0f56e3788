// Bodies of requests to `atoll serve`: each is read, or refused with status 400 in one line that
// can be sent.

#include <nlohmann/json.hpp>

#include "atoll/serve/api/api_error.h"
#include "atoll/serve/api/chat_request.h"
#include "atoll/serve/api/completion_request.h"
#include "fuzz.h"

namespace {

namespace api = atl::serve::api;

// The first byte says which route it is for.
void read(std::uint8_t route, std::string_view body) {
  const api::Json json = api::parse_body(body);
  if (route % 2 == 0) {
    const api::CompletionRequest request = api::parse_completion(json);
    if (request.prompts.empty()) std::abort();
  } else {
    const api::ChatRequest request = api::parse_chat(json);
    if (request.messages.empty()) std::abort();
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  try {
    read(data[0], atl::fuzz::text(data + 1, size - 1));
  } catch (const api::ApiError& error) {
    const std::string sent = api::error_json(error);
    const bool is_clients_fault = error.status() >= 400 && error.status() < 500;
    if (!is_clients_fault || !nlohmann::json::accept(sent)) {
      fmt::print(stderr, "status {}: {}\n", error.status(), sent);
      std::abort();
    }
  }
  return 0;
}
