#pragma once

// The server of `atoll watch`: the page, runs as JSON, and a stream of changes.

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "atoll/http/tls.h"

namespace atl::watch {

/// The options of the server.
struct ServiceOptions {
  std::vector<std::filesystem::path> roots;  ///< runs, or directories that have some
  std::string host = "127.0.0.1";
  int port = 0;                    ///< 0: a free one
  std::vector<std::string> names;  ///< host names that clients may use, beside localhost
  std::string token;               ///< a client needs it to write; empty: a new one is made
  bool reading_needs_token = false;
  std::shared_ptr<const http::TlsContext> tls = nullptr;  ///< null: plain. Shared with the server.
  std::size_t cache_bytes = std::size_t{512} << 20;       ///< see RunTable
  /// Make the JSON of a directory with a study, or with a ledger; may throw Error. Empty: these are
  /// not shown.
  std::function<std::string(const std::filesystem::path&dir)> study_json, ledger_json;
};

/// Serves until it is destroyed, with two threads of its own.
class Service {
 public:
  /// Throws Error(kUser) for an address that it cannot listen at.
  explicit Service(const ServiceOptions& options);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  int port() const;
  const std::string& token() const;
  /// The URL for a browser, "http://127.0.0.1:7412/?token=..."; with the token the page may write.
  std::string url() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace atl::watch
