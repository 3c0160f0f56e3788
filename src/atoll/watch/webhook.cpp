#include "atoll/watch/webhook.h"

#include <curl/curl.h>

#include <memory>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/metrics/alert.h"

namespace atl::watch {

namespace {

struct EasyDelete {
  void operator()(CURL* easy) const { curl_easy_cleanup(easy); }
};
struct ListDelete {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

// Drops the body of the answer.
std::size_t ignore(char*, std::size_t size, std::size_t count, void*) {
  return size * count;
}

}  // namespace

void check_webhook(const std::string& url, const std::string& what) {
  const bool has_scheme = url.starts_with("http://") || url.starts_with("https://");
  if (has_scheme && !metrics::host_of_url(url).empty()) return;
  throw user_error("{} is '{}', and must be http://HOST/... or https://HOST/...", what, url);
}

Webhook::Webhook(std::string url) : url_(std::move(url)) {
  check_webhook(url_, "the webhook of alerts");
}

Webhook::~Webhook() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    ends_at_ = std::chrono::steady_clock::now() + kTimeout;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Webhook::post(std::string json) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= kMostWaiting) {
      ++dropped_;
      return;
    }
    waiting_.push_back(std::move(json));
    if (!thread_.joinable()) thread_ = std::thread([this] { send_all(); });
  }
  changed_.notify_one();
}

void Webhook::send_all() {
  static const CURLcode is_ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (is_ready != CURLE_OK) {
    log::warning("alerts go to no webhook: libcurl does not start: {}",
                 curl_easy_strerror(is_ready));
    return;
  }
  for (;;) {
    std::string next;
    std::int64_t dropped = 0;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return ends_ || !waiting_.empty(); });
      if (waiting_.empty() || std::chrono::steady_clock::now() > ends_at_) {
        dropped = dropped_ + static_cast<std::int64_t>(waiting_.size());
        if (dropped > 0)
          log::warning("{} alerts did not go to {}", dropped, metrics::host_of_url(url_));
        return;
      }
      next = std::move(waiting_.front());
      waiting_.pop_front();
      dropped = std::exchange(dropped_, 0);
    }
    if (dropped > 0)
      log::warning("{} alerts did not go to {}", dropped, metrics::host_of_url(url_));
    send(next);
  }
}

int Webhook::wants_to_abort(void* webhook, long long, long long, long long, long long) {
  auto& self = *static_cast<Webhook*>(webhook);
  const std::lock_guard lock(self.mutex_);
  return std::chrono::steady_clock::now() > self.ends_at_ ? 1 : 0;
}

void Webhook::send(const std::string& json) {
  const std::unique_ptr<CURL, EasyDelete> easy(curl_easy_init());
  const std::unique_ptr<curl_slist, ListDelete> headers(
      curl_slist_append(nullptr, "Content-Type: application/json"));
  CURL* const handle = easy.get();
  char reason[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(handle, CURLOPT_URL, url_.c_str());
  curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(handle, CURLOPT_USERAGENT, "atoll");
  curl_easy_setopt(handle, CURLOPT_POSTFIELDS, json.c_str());
  curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(json.size()));
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, &ignore);
  curl_easy_setopt(handle, CURLOPT_TIMEOUT, static_cast<long>(kTimeout.count()));
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(handle, CURLOPT_XFERINFODATA, this);
  curl_easy_setopt(
      handle, CURLOPT_XFERINFOFUNCTION,
      +[](void* self, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d) {
        return wants_to_abort(self, a, b, c, d);
      });
  curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, reason);
  const CURLcode code = curl_easy_perform(handle);
  long status = 0;
  curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
  std::string failure;
  if (code != CURLE_OK) {
    failure = reason[0] == '\0' ? curl_easy_strerror(code) : reason;
  } else if (status < 200 || status >= 300) {
    failure = "it answered " + std::to_string(status);
  }
  if (!failure.empty() && failure != last_failure_) {
    log::warning("an alert did not go to {}: {}; alerts.webhook says where to",
                 metrics::host_of_url(url_), failure);
  }
  last_failure_ = failure;
}

}  // namespace atl::watch
