#pragma once

// What `atoll watch` serves: the page, the numbers as JSON, and news as they come.

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "atoll/http/tls.h"

namespace atl::watch {

/// What is served, where, and to whom.
struct ServiceOptions {
  std::vector<std::filesystem::path> roots;  ///< runs, or directories that have some
  std::string host = "127.0.0.1";
  int port = 0;                    ///< 0: a free one
  std::vector<std::string> names;  ///< by which it may be called, beside addresses and localhost
  std::string token;               ///< lets a client write; empty: a new one is made
  bool reading_needs_token = false;
  std::shared_ptr<const http::TlsContext> tls = nullptr;  ///< null: plain. Shared with the server.
  std::size_t cache_bytes = std::size_t{512} << 20;       ///< for records, of all runs together
  /// The JSON of a directory with a study, or with a ledger; throws Error. Empty: none is shown.
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
  /// What a browser is to open: "http://127.0.0.1:7412/"; with the token, which lets it write too.
  std::string url() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace atl::watch
