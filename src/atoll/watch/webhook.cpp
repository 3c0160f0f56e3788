#include "atoll/watch/webhook.h"

#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/metrics/alert.h"
#include "atoll/watch/http_post.h"

namespace atl::watch {

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

bool Webhook::is_late() {
  const std::lock_guard lock(mutex_);
  return std::chrono::steady_clock::now() > ends_at_;
}

void Webhook::send(const std::string& json) {
  const std::string failure =
      http_post({.url = url_, .json = json, .timeout = kTimeout}, [this] { return is_late(); });
  if (!failure.empty() && failure != last_failure_) {
    log::warning("an alert did not go to {}: {}; alerts.webhook says where to",
                 metrics::host_of_url(url_), failure);
  }
  last_failure_ = failure;
}

}  // namespace atl::watch
