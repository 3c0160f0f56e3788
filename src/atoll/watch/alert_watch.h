#pragma once

// Watches a run while it trains, and reports alerts: on the terminal, in alerts.jsonl, and to a
// webhook.

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "atoll/base/files/append_file.h"
#include "atoll/metrics/alert.h"
#include "atoll/metrics/observer.h"
#include "atoll/watch/alert_rules.h"
#include "atoll/watch/webhook.h"

namespace atl::watch {

/// Reports alerts to log, file and webhook. Safe to use from several threads.
class AlertOutlet {
 public:
  /// `webhook`: its URL; empty: none. `on_told` is called with each alert, on the thread that calls
  /// tell(); may be empty. The first alert makes the file. Throws Error(kUser) for a URL that is
  /// not http:// or https:// with a host.
  AlertOutlet(std::filesystem::path run_dir, const std::string& webhook,
              std::function<void(const Alert&)> on_told = {});

  /// Sets the alert's time to now and reports it; the webhook gets it later. An error of the file
  /// is only logged.
  void tell(Alert alert);

 private:
  std::filesystem::path run_dir_;
  std::mutex mutex_;
  std::optional<AppendFile> file_;
  bool has_failed_ = false;
  std::unique_ptr<Webhook> webhook_;  // null: none
  std::function<void(const Alert&)> on_told_;
};

/// The observer that runs the rules, and reports their alerts on a thread of its own. The trainer's
/// thread waits for a lock that is held while a rule computes; after a checkpoint it also adds up
/// the sizes of the checkpoint's files.
class AlertWatch : public metrics::Observer {
 public:
  /// `on_told`: see AlertOutlet.
  AlertWatch(AlertContext context, std::set<AlertKind> off, const std::string& webhook,
             std::function<void(const Alert&)> on_told = {});
  /// Reports the alerts that are left, and waits for that.
  ~AlertWatch() override;

  void stepped(const metrics::StepFacts& facts) override;
  void paused(metrics::Pause what) override;
  void resumed() override;
  void checkpoint_begun(std::int64_t step) override;
  void checkpoint_saved(const std::filesystem::path& path) override;
  void ranks_lost(std::int64_t step, int before, int now, const std::string& why) override;

 private:
  void look_after();
  void tell_waiting(std::unique_lock<std::mutex>& lock);
  void add(std::vector<Alert> alerts);

  std::filesystem::path run_dir_;
  AlertOutlet outlet_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  AlertRules rules_;
  std::vector<Alert> waiting_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace atl::watch
