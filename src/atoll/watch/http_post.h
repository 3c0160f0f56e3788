#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace atl::watch {

/// A JSON text for a server.
struct HttpPost {
  std::string url;           ///< http:// or https://
  std::string json;          ///< the body
  std::string token = "";    ///< sent as "Authorization: Bearer TOKEN"; empty: none
  std::string ca_file = "";  ///< PEM file of those that may sign the server; empty: the system's
  std::chrono::seconds timeout{5};
};

/// Posts it, and waits for the answer, whose body is dropped. Ends early once `ends` (may be empty)
/// says true. Returns why the server has not taken it; empty: it has (a status of 200 to 299).
std::string http_post(const HttpPost& post, const std::function<bool()>& ends = {});

}  // namespace atl::watch
