#include "atoll/hub/http_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <exception>

#include "atoll/base/error.h"

namespace atl::hub {

namespace {

constexpr int kMostRedirects = 10;
constexpr std::size_t kMostHeadBytes = 256 << 10;

struct ListDelete {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
struct UrlDelete {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
using Url = std::unique_ptr<CURLU, UrlDelete>;

std::string part_of(CURLU* url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, flags) != CURLUE_OK) return "";
  std::string result = text;
  curl_free(text);
  return result;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

void start_curl() {
  static const CURLcode is_ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (is_ready == CURLE_OK) return;
  throw make_error(ErrorKind::kIo, "libcurl does not start: {}", curl_easy_strerror(is_ready));
}

}  // namespace

const std::string* HttpResponse::field(std::string_view name) const {
  for (const auto& [key, value] : fields) {
    if (key == name) return &value;
  }
  return nullptr;
}

std::string origin_of(const std::string& url) {
  const Url parsed(curl_url());
  if (curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK) return "";
  const std::string scheme = lower(part_of(parsed.get(), CURLUPART_SCHEME));
  if (scheme != "http" && scheme != "https") return "";
  return scheme + "://" + lower(part_of(parsed.get(), CURLUPART_HOST)) + ":" +
         part_of(parsed.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT);
}

std::string resolved_url(const std::string& base, const std::string& reference) {
  const Url parsed(curl_url());
  if (curl_url_set(parsed.get(), CURLUPART_URL, base.c_str(), 0) != CURLUE_OK) return "";
  if (curl_url_set(parsed.get(), CURLUPART_URL, reference.c_str(), 0) != CURLUE_OK) return "";
  std::string url = part_of(parsed.get(), CURLUPART_URL);
  const std::string origin = origin_of(url);
  const bool falls = origin_of(base).starts_with("https:") && !origin.starts_with("https:");
  return origin.empty() || falls ? "" : url;
}

std::string escaped(std::string_view text, bool keeps_slashes) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string all;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_plain = (byte < 0x80 && std::isalnum(byte) != 0) || c == '-' || c == '_' ||
                          c == '.' || c == '~' || (keeps_slashes && c == '/');
    if (is_plain) {
      all += c;
    } else {
      all += '%';
      all += kDigits[byte >> 4];
      all += kDigits[byte & 15];
    }
  }
  return all;
}

// What the callbacks of one transfer share.
struct HttpClient::Transfer {
  const HttpRequest& request;
  HttpOutcome outcome;
  std::size_t head_bytes = 0;
  std::string limit;          // which bound the answer broke
  std::exception_ptr thrown;  // by the request's own functions: libcurl lets no exception through

  bool is_body_wanted() const {
    return request.on_body && outcome.response.status >= 200 && outcome.response.status < 300;
  }

  // One line of a head. Each answer begins anew: a proxy's own, "100 Continue".
  bool take_line(std::string_view line) {
    head_bytes += line.size();
    if (head_bytes > kMostHeadBytes) {
      limit = "its head is too long";
      return false;
    }
    HttpResponse& response = outcome.response;
    if (line.starts_with("HTTP/")) {
      response = {};
      const std::size_t space = line.find(' ');
      if (space != line.npos) {
        for (const char c : line.substr(space + 1, 3)) {
          if (c >= '0' && c <= '9') response.status = response.status * 10 + (c - '0');
        }
      }
      return true;
    }
    if (trimmed(line).empty()) {
      if (response.status < 200 || !request.on_head || request.on_head(response)) return true;
      outcome.was_refused = true;
      return false;
    }
    const std::size_t colon = line.find(':');
    if (colon == line.npos) return true;
    response.fields.emplace_back(lower(std::string(line.substr(0, colon))),
                                 std::string(trimmed(line.substr(colon + 1))));
    return true;
  }

  bool take_body(std::string_view bytes) {
    if (is_body_wanted()) {
      if (request.on_body(bytes)) return true;
      outcome.was_refused = true;
      return false;
    }
    std::string& body = outcome.response.body;
    if (body.size() + bytes.size() > request.max_body_bytes) {
      limit = "its body is too long";
      return false;
    }
    body += bytes;
    return true;
  }

  template <typename Take>
  bool safely(const Take& take) {
    try {
      return take();
    } catch (...) {
      thrown = std::current_exception();
      return false;
    }
  }

  static std::size_t on_line(char* data, std::size_t size, std::size_t count, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    const std::size_t bytes = size * count;
    return transfer.safely([&] { return transfer.take_line({data, bytes}); }) ? bytes : 0;
  }
  static std::size_t on_bytes(char* data, std::size_t size, std::size_t count, void* self) {
    const std::size_t bytes = size * count;
    // 0 of 0 would be a success.
    auto& transfer = *static_cast<Transfer*>(self);
    return transfer.safely([&] { return transfer.take_body({data, bytes}); }) ? bytes : bytes + 1;
  }
  static int on_progress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    auto& transfer = *static_cast<Transfer*>(self);
    const std::atomic<bool>* stops = transfer.request.stops;
    if (stops == nullptr || !stops->load()) return 0;
    transfer.outcome.was_refused = true;
    return 1;
  }
};

HttpClient::HttpClient(const HubSettings& settings) : settings_(settings) {
  start_curl();
  easy_ = curl_easy_init();
  if (easy_ == nullptr) throw make_error(ErrorKind::kIo, "libcurl does not start");
}

HttpClient::~HttpClient() {
  curl_easy_cleanup(static_cast<CURL*>(easy_));
}

HttpOutcome HttpClient::get(const HttpRequest& request) {
  std::string url = request.url;
  for (int i = 0; i <= kMostRedirects; ++i) {
    HttpOutcome outcome = get_once(request, url);
    if (!outcome.failure.empty() || !is_redirect(outcome.response.status)) return outcome;
    const std::string* location = outcome.response.field("location");
    const std::string next = location == nullptr ? "" : resolved_url(url, *location);
    if (next.empty()) {
      outcome.failure = "it leads to an address that is not followed: " +
                        (location == nullptr ? std::string("none") : *location);
      return outcome;
    }
    url = next;
  }
  HttpOutcome outcome;
  outcome.failure = "it leads from one address to the next without an end";
  return outcome;
}

HttpOutcome HttpClient::get_once(const HttpRequest& request, const std::string& url) {
  CURL* const easy = static_cast<CURL*>(easy_);
  curl_easy_reset(easy);  // keeps connections
  Transfer transfer{.request = request};
  std::array<char, CURL_ERROR_SIZE> reason{};
  std::unique_ptr<curl_slist, ListDelete> headers;
  const auto add_header = [&](const std::string& line) {
    headers.reset(curl_slist_append(headers.release(), line.c_str()));
  };
  // What is resumed and hashed must be the file's own bytes.
  add_header("Accept-Encoding: identity");
  if (!settings_.token.empty() && origin_of(url) == origin_of(settings_.endpoint)) {
    add_header("Authorization: Bearer " + settings_.token);
  }
  if (request.from) add_header("Range: bytes=" + std::to_string(*request.from) + "-");
  curl_easy_setopt(easy, CURLOPT_URL, url.c_str());
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(easy, CURLOPT_USERAGENT, "atoll");
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, static_cast<long>(settings_.connect_timeout_s));
  curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, static_cast<long>(settings_.stall_timeout_s));
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, &Transfer::on_line);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, &transfer);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &Transfer::on_bytes);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, &Transfer::on_progress);
  curl_easy_setopt(easy, CURLOPT_XFERINFODATA, &transfer);
  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, reason.data());
  if (!settings_.certificates.empty()) {
    curl_easy_setopt(easy, CURLOPT_CAINFO, settings_.certificates.c_str());
  }
  const CURLcode code = curl_easy_perform(easy);
  if (transfer.thrown) std::rethrow_exception(transfer.thrown);
  HttpOutcome outcome = std::move(transfer.outcome);
  if (code == CURLE_OK) return outcome;
  outcome.failure = reason[0] == '\0' ? curl_easy_strerror(code) : reason.data();
  if (!transfer.limit.empty()) outcome.failure = transfer.limit;
  outcome.is_unreachable = code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_CONNECT ||
                           code == CURLE_COULDNT_RESOLVE_PROXY;
  return outcome;
}

}  // namespace atl::hub
