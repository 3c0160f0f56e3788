#include "atoll/watch/kubeflow_status.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/log.h"
#include "atoll/metrics/alert.h"
#include "atoll/watch/http_post.h"
#include "atoll/watch/webhook.h"

namespace atl::watch {

namespace {

constexpr const char* kUrl = "KUBEFLOW_TRAINER_SERVER_URL";
constexpr const char* kCaFile = "KUBEFLOW_TRAINER_SERVER_CA_CERT";
constexpr const char* kTokenFile = "KUBEFLOW_TRAINER_SERVER_TOKEN";
// How much of the time of a step is the newest one's.
constexpr double kNewest = 0.1;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The token of a pod is a file that its kubelet writes anew now and then.
std::string read_token(const std::string& file) {
  if (file.empty()) return "";
  std::string token = read_file(file);
  while (!token.empty() && std::isspace(static_cast<unsigned char>(token.back())) != 0) {
    token.pop_back();
  }
  return token;
}

}  // namespace

std::optional<KubeflowServer> kubeflow_server() {
  const std::string url = variable(kUrl);
  if (url.empty()) return std::nullopt;
  try {
    check_webhook(url, kUrl);
  } catch (const Error& error) {
    log::warning("{}; Kubeflow hears nothing of this run", error.what());
    return std::nullopt;
  }
  return KubeflowServer{
      .url = url, .ca_file = variable(kCaFile), .token_file = variable(kTokenFile)};
}

KubeflowStatus::KubeflowStatus(KubeflowServer server, std::int64_t first_step,
                               std::int64_t last_step)
    : server_(std::move(server)),
      first_step_(first_step),
      last_step_(last_step),
      exceptions_(std::uncaught_exceptions()),
      status_{.step = first_step} {
  thread_ = std::thread([this] { report_all(); });
}

KubeflowStatus::~KubeflowStatus() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    is_new_ = true;
    is_done_ = status_.step >= last_step_ && std::uncaught_exceptions() == exceptions_;
  }
  changed_.notify_one();
  thread_.join();
}

void KubeflowStatus::stepped(const metrics::StepFacts& facts) {
  {
    const std::lock_guard lock(mutex_);
    double each = facts.seconds;
    if (status_.seconds_each > 0) {
      each = kNewest * facts.seconds + (1 - kNewest) * status_.seconds_each;
    }
    status_ = {.step = facts.step,
               .seconds_each = each,
               .loss = facts.loss,
               .grad_norm = facts.grad_norm,
               .tokens_per_s = each > 0 ? static_cast<double>(facts.tokens) / each : 0};
    is_new_ = true;
  }
  changed_.notify_one();
}

void KubeflowStatus::report_all() {
  using Clock = std::chrono::steady_clock;
  Clock::time_point next = Clock::now();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return is_new_ || ends_; });
    changed_.wait_until(lock, next, [this] { return ends_; });
    const Status status = status_;
    const bool is_last = ends_;
    const bool is_done = is_done_;
    is_new_ = false;
    lock.unlock();
    report(status, is_done);
    if (is_last) return;
    next = Clock::now() + kEvery;
    lock.lock();
  }
}

void KubeflowStatus::report(const Status& status, bool is_done) {
  std::string failure;
  try {
    failure = http_post({.url = server_.url,
                         .json = json(status, is_done),
                         .token = read_token(server_.token_file),
                         .ca_file = server_.ca_file});
  } catch (const Error& error) {
    failure = error.what();
  }
  if (!failure.empty() && failure != last_failure_) {
    log::warning("progress was not reported to Kubeflow at {}: {}",
                 metrics::host_of_url(server_.url), failure);
  }
  last_failure_ = failure;
}

std::string KubeflowStatus::json(const Status& status, bool is_done) const {
  const double part =
      last_step_ > 0 ? static_cast<double>(status.step) / static_cast<double>(last_step_) : 0;
  const int percent = is_done ? 100 : std::clamp(static_cast<int>(100 * part), 0, 99);
  nlohmann::json all = {
      {"progressPercentage", percent},
      {"lastUpdatedTime",
       fmt::format("{:%Y-%m-%dT%H:%M:%S}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(
                                                std::chrono::system_clock::now())))}};
  if (status.seconds_each > 0) {
    const auto left = static_cast<double>(std::max<std::int64_t>(last_step_ - status.step, 0));
    all["estimatedRemainingSeconds"] =
        static_cast<std::int64_t>(std::ceil(left * status.seconds_each));
  }
  if (status.step > first_step_) {
    nlohmann::json metrics = nlohmann::json::array();
    const auto add = [&](const char* name, double value) {
      if (!std::isfinite(value)) return;
      metrics.push_back({{"name", name}, {"value", fmt::format("{:.6g}", value)}});
    };
    metrics.push_back({{"name", "step"}, {"value", std::to_string(status.step)}});
    add("loss", status.loss);
    add("grad_norm", status.grad_norm);
    add("tokens_per_second", status.tokens_per_s);
    all["metrics"] = std::move(metrics);
  }
  return nlohmann::json({{"trainerStatus", std::move(all)}}).dump();
}

}  // namespace atl::watch
