#include "atoll/hub/settings.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"

namespace atl::hub {

namespace fs = std::filesystem;

namespace {

std::string value_of(const GetVariable& variable, const char* name) {
  const char* value = variable(name);
  return value == nullptr ? "" : value;
}

bool is_true(std::string value) {
  std::transform(value.begin(), value.end(), value.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

// Replaces ~ at the front, and $NAME or ${NAME}, as Python's expanduser and expandvars do.
fs::path expanded(const GetVariable& variable, std::string_view text) {
  std::string all;
  if (text == "~" || text.starts_with("~/")) {
    all = value_of(variable, "HOME");
    text.remove_prefix(1);
  }
  while (!text.empty()) {
    if (text.front() != '$') {
      all += text.front();
      text.remove_prefix(1);
      continue;
    }
    const bool is_braced = text.starts_with("${");
    std::size_t end = is_braced ? 2 : 1;
    const std::size_t begin = end;
    while (end < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_')) {
      ++end;
    }
    const std::string name(text.substr(begin, end - begin));
    if (is_braced && end < text.size() && text[end] == '}') ++end;
    const char* value = name.empty() ? nullptr : variable(name.c_str());
    all += value == nullptr ? std::string(text.substr(0, end)) : value;
    text.remove_prefix(end);
  }
  return all;
}

fs::path home_of(const GetVariable& variable) {
  if (const std::string home = value_of(variable, "HF_HOME"); !home.empty()) {
    return expanded(variable, home);
  }
  const std::string cache = value_of(variable, "XDG_CACHE_HOME");
  return (cache.empty() ? expanded(variable, "~/.cache") : expanded(variable, cache)) /
         "huggingface";
}

fs::path cache_of(const GetVariable& variable, const fs::path& home) {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const std::string cache = value_of(variable, name); !cache.empty()) {
      return expanded(variable, cache);
    }
  }
  return home / "hub";
}

std::string trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == text.npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(kSpace) - begin + 1));
}

// A token stands in a header: nothing of it may end the line. It is never shown.
std::string checked_token(std::string token, const std::string& where) {
  const bool is_plain =
      std::all_of(token.begin(), token.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; });
  if (is_plain) return token;
  throw user_error("{} holds no token: there is white space or a control character in it", where);
}

std::string token_of(const GetVariable& variable, const fs::path& home) {
  if (is_true(value_of(variable, "HF_HUB_DISABLE_IMPLICIT_TOKEN"))) return "";
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    std::string token = trimmed(value_of(variable, name));
    if (!token.empty()) return checked_token(std::move(token), name);
  }
  const std::string given = value_of(variable, "HF_TOKEN_PATH");
  const fs::path file = given.empty() ? home / "token" : expanded(variable, given);
  if (!file_exists(file)) return "";
  return checked_token(trimmed(read_file(file)), file.string());
}

std::string endpoint_of(const GetVariable& variable) {
  std::string endpoint = value_of(variable, "HF_ENDPOINT");
  if (endpoint.empty()) return HubSettings().endpoint;
  while (endpoint.ends_with('/')) endpoint.pop_back();
  const std::size_t scheme = endpoint.find("://");
  const std::string name = endpoint.substr(0, std::min(scheme, endpoint.size()));
  const bool has_host = scheme != endpoint.npos && endpoint.size() > scheme + 3;
  if ((name == "http" || name == "https") && has_host) return endpoint;
  throw user_error("HF_ENDPOINT is {}, and must be http://HOST or https://HOST", endpoint);
}

int seconds_of(const GetVariable& variable, const char* name, int otherwise) {
  const std::string text = value_of(variable, name);
  if (text.empty()) return otherwise;
  int seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  constexpr int kMost = 24 * 3600;
  if (error == std::errc() && end == text.data() + text.size() && seconds > 0 && seconds <= kMost) {
    return seconds;
  }
  throw user_error("{} is {}, and must be a number of seconds from 1 to {}", name, text, kMost);
}

}  // namespace

HubSettings read_settings(const GetVariable& variable) {
  HubSettings settings;
  const fs::path home = home_of(variable);
  settings.endpoint = endpoint_of(variable);
  settings.cache = cache_of(variable, home);
  settings.token = token_of(variable, home);
  settings.is_offline = is_true(value_of(variable, "HF_HUB_OFFLINE")) ||
                        is_true(value_of(variable, "TRANSFORMERS_OFFLINE"));
  settings.has_symlinks = !is_true(value_of(variable, "HF_HUB_DISABLE_SYMLINKS"));
  for (const char* name : {"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"}) {
    if (settings.certificates.empty()) settings.certificates = value_of(variable, name);
  }
  settings.connect_timeout_s =
      seconds_of(variable, "HF_HUB_ETAG_TIMEOUT", settings.connect_timeout_s);
  settings.stall_timeout_s =
      seconds_of(variable, "HF_HUB_DOWNLOAD_TIMEOUT", settings.stall_timeout_s);
  return settings;
}

HubSettings read_settings() {
  return read_settings([](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace atl::hub
