#pragma once

// Serves a page of metrics to Prometheus.

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "atoll/http/tls.h"

namespace atl::watch {

/// The options of the server: where it listens and who may read. An empty text was not given.
struct PrometheusAddress {
  std::string listen;  ///< HOST:PORT; port 0: a free one
  std::string token_file;
  std::string certificate, key;
  /// The prefix of these settings in error messages: `prefix` + "listen", "token_file", ... For
  /// command-line options it is "--metrics-", and names have '-' for '_'.
  std::string prefix = "metrics.";

  bool is_asked() const { return !listen.empty(); }
  std::string name(std::string_view part) const;
};

/// The checked options of a server, with the content of the files that they name.
struct PrometheusAccess {
  std::string host;
  int port = 0;
  std::string token;                                 ///< empty: no token is needed
  std::shared_ptr<const http::TlsContext> tls = {};  ///< null: plain. Shared with the server.
};

/// Checks the options and reads their files. An address other than the loopback needs a token,
/// because TLS alone does not restrict who may read. Throws Error(kUser) that names the options
/// that conflict, or the file that is missing.
PrometheusAccess open_access(const PrometheusAddress& address);

/// Reads a token from a file: one word of at least 16 letters, digits, '-' and '_'. Throws
/// Error(kUser) naming `option` for anything else, or when others than the owner may read the file.
std::string read_token(const std::string& file, const std::string& option);

/// Serves GET /metrics until it is destroyed. Its thread runs only when a CPU is idle (SCHED_IDLE),
/// so that no client can delay a step. Logs its URL.
class PrometheusServer {
 public:
  /// `page` makes the text; it is called on the server's thread, and an exception from it is
  /// answered with status 500. The families of add_process() are appended. Throws as
  /// open_access(), and Error(kUser) when it cannot listen at the address.
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
