#pragma once

// The HTTP server of `atoll serve`: OpenAI's routes for text, over a generator.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "atoll/http/asset.h"
#include "atoll/http/tls.h"
#include "atoll/serve/api/keys.h"
#include "atoll/serve/api/serving.h"

namespace atl::serve::api {

/// Where a service listens, and who may ask.
struct ServiceOptions {
  std::string host = "127.0.0.1";
  int port = 0;                    ///< 0: a free one
  std::vector<std::string> names;  ///< host names that clients may use, beside localhost
  KeyList keys;                    ///< without one, anybody who reaches the service may ask
  std::shared_ptr<const http::TlsContext> tls = nullptr;  ///< null: plain. Shared with the server.
  std::vector<http::Asset> assets;             ///< of the page for browsers; see page_assets()
  std::chrono::milliseconds ping_every{5000};  ///< of streams that have nothing to say
};

/// Serves until it is destroyed, with threads of its own.
class Service {
 public:
  /// Listens, and answers with status 503 until serve(). Throws Error(kUser) for an address that it
  /// cannot listen at.
  explicit Service(ServiceOptions options);
  /// Cancels what runs, and returns when the generator has let go of it.
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  /// The model is there. Once; the generator must outlive this.
  void serve(ServedModel model);
  /// New requests get status 503; those that run go on.
  void refuse_new();
  /// Whether all requests that came have their whole answers, and no client has some of one to get.
  bool is_idle() const;

  /// What all requests took so far, as long as this lives.
  const RequestTimes& times() const;
  int port() const;
  /// "http://127.0.0.1:8000".
  std::string url() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace atl::serve::api
