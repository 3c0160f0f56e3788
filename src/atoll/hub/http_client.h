#pragma once

// One HTTP request at a time, by libcurl: what the hub's protocol needs of it.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "atoll/hub/settings.h"

namespace atl::hub {

/// What a server answered.
struct HttpResponse {
  int status = 0;
  std::vector<std::pair<std::string, std::string>> fields;  ///< names in lower case
  std::string body;

  /// The first field of that name (lower case); null: there is none.
  const std::string* field(std::string_view name) const;
};

/// Takes bytes of a body as they come; false ends the transfer.
using TakeBytes = std::function<bool(std::string_view bytes)>;

/// What is asked.
struct HttpRequest {
  std::string url;
  std::optional<std::uint64_t> from;  ///< Range: bytes=FROM-
  /// Looks at every answer before its body comes, one that leads elsewhere too; false ends the
  /// transfer. Empty: any will do.
  std::function<bool(const HttpResponse& head)> on_head = {};
  /// Takes the body of an answer of 2xx, which is in HttpResponse::body otherwise.
  TakeBytes on_body = {};
  std::size_t max_body_bytes = std::size_t{64} << 20;  ///< of HttpResponse::body
  const std::atomic<bool>* stops = nullptr;            ///< once true, the transfer ends
};

/// How a request ended.
struct HttpOutcome {
  HttpResponse response;        ///< the last one, as far as it came
  std::string failure;          ///< why no whole answer came; empty: one did
  bool is_unreachable = false;  ///< nobody of that name, or nobody who answers
  bool was_refused = false;     ///< by on_head, on_body or `stops`
};

/// Sends requests, and keeps connections for the next ones. Proxies are those of the environment
/// (HTTPS_PROXY, http_proxy, ALL_PROXY, NO_PROXY), as libcurl reads them. For one thread at a time.
class HttpClient {
 public:
  /// `settings` must outlive this. Throws Error(kIo) when libcurl does not start.
  explicit HttpClient(const HubSettings& settings);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// GETs an address and follows at most 10 answers that lead elsewhere. The token goes with
  /// requests to the endpoint's own scheme, host and port alone.
  HttpOutcome get(const HttpRequest& request);

 private:
  struct Transfer;
  HttpOutcome get_once(const HttpRequest& request, const std::string& url);

  const HubSettings& settings_;
  void* easy_ = nullptr;  // CURL*
};

/// Scheme, host and port of an address in lower case ("https://huggingface.co:443"); empty for one
/// that is neither http nor https.
std::string origin_of(const std::string& url);

/// The address that `reference` (of Location or Link) means in an answer of `base`; empty where it
/// is none, or leads from https to http.
std::string resolved_url(const std::string& base, const std::string& reference);

/// Text as a part of an address: all but letters, digits and "-_.~" as %XX, and '/' where
/// `keeps_slashes` is false.
std::string escaped(std::string_view text, bool keeps_slashes);

}  // namespace atl::hub
