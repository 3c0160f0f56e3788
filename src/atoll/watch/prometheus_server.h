#pragma once

// Serves a page of metrics to Prometheus.

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "atoll/http/tls.h"

namespace atl::watch {

/// Where metrics are served, and to whom. Texts that are empty were not given.
struct PrometheusAddress {
  std::string listen;  ///< HOST:PORT; port 0: a free one
  std::string token_file;
  std::string certificate, key;
  /// How the user calls these, for messages: each is `prefix` + "listen", "token_file", ...;
  /// for options of a command "--metrics-", with '-' for '_'.
  std::string prefix = "metrics.";

  bool is_asked() const { return !listen.empty(); }
  std::string name(std::string_view part) const;
};

/// What the address of a server comes to once its files are read.
struct PrometheusAccess {
  std::string host;
  int port = 0;
  std::string token;                                 ///< empty: none is needed
  std::shared_ptr<const http::TlsContext> tls = {};  ///< null: plain. Shared with the server.
};

/// Reads the files of an address. Away from this machine's own addresses a token is needed: TLS
/// alone would not say who may read. Throws Error(kUser) naming what does not go together, or the
/// file that is missing.
PrometheusAccess open_access(const PrometheusAddress& address);

/// The token in a file: one word of at least 16 letters, digits, '-' and '_'. Throws Error(kUser)
/// naming `option` when it is not, or others than the owner may read it.
std::string read_token(const std::string& file, const std::string& option);

/// Serves GET /metrics until it is destroyed, with a thread of its own that gets only time which
/// nobody else on this machine wants: no client can delay a step. Says in the log where.
class PrometheusServer {
 public:
  /// `page` makes the text, on that thread; what it throws is answered with status 500. Families
  /// of the process are added. Throws as open_access(), and Error(kUser) for an address that it
  /// cannot listen at.
  PrometheusServer(const PrometheusAddress& address, std::function<std::string()> page);
  ~PrometheusServer();
  PrometheusServer(const PrometheusServer&) = delete;
  PrometheusServer& operator=(const PrometheusServer&) = delete;

  int port() const;
  /// "http://127.0.0.1:9100/metrics".
  std::string url() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace atl::watch
