#pragma once

// What a person says of the hub by environment variables, which are those of huggingface_hub.

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>

namespace atl::hub {

/// When a request that failed for a while is sent again.
struct RetryPolicy {
  int attempts = 6;  ///< without a byte between them
  std::chrono::milliseconds first_wait{1000};
  std::chrono::milliseconds longest_wait{8000};  ///< waits double up to this
  /// The longest that a server may ask for (Retry-After). One that asks for more is not waited for.
  std::chrono::seconds longest_asked{300};
};

/// Where the hub is and where its files go.
struct HubSettings {
  std::string endpoint = "https://huggingface.co";  ///< HF_ENDPOINT, without a slash at its end
  std::filesystem::path cache;  ///< HF_HUB_CACHE, else hub/ of HF_HOME (~/.cache/huggingface)
  std::string token;            ///< HF_TOKEN, else the file HF_TOKEN_PATH (HF_HOME/token)
  bool is_offline = false;      ///< HF_HUB_OFFLINE
  bool has_symlinks = true;     ///< not HF_HUB_DISABLE_SYMLINKS
  std::string certificates;     ///< SSL_CERT_FILE, CURL_CA_BUNDLE; empty: the system's
  int connect_timeout_s = 10;   ///< HF_HUB_ETAG_TIMEOUT
  int stall_timeout_s = 30;     ///< HF_HUB_DOWNLOAD_TIMEOUT: without a byte
  int num_parallel = 8;         ///< files at the same time
  RetryPolicy retry = {};
};

/// Gives the value of an environment variable; null: it is not set.
using GetVariable = std::function<const char*(const char* name)>;

/// Reads the settings. Throws Error(kUser) naming the variable for an endpoint that is no address,
/// a token with white space or control characters in it, and a timeout that is no number of
/// seconds.
HubSettings read_settings(const GetVariable& variable);

/// The same, of the environment of this process.
HubSettings read_settings();

}  // namespace atl::hub
