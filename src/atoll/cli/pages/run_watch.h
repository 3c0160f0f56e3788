#pragma once

// Who watches a run from within the program that trains it.

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "atoll/metrics/observer.h"
#include "atoll/train/config/recipe.h"
#include "atoll/train/trainer.h"
#include "atoll/watch/alert_watch.h"
#include "atoll/watch/kubeflow_status.h"
#include "atoll/watch/prometheus.h"
#include "atoll/watch/prometheus_server.h"

namespace atl::cli {

/// The command line that goes on with a run of `num_ranks` ranks, as a shell takes it; without
/// alerts.webhook, which may hold a key, and without the setting `without`, which the caller adds.
std::string resume_command(const std::string& recipe, const std::vector<std::string>& overrides,
                           int num_ranks, const std::string& without = "");

/// The kinds that alerts.off names.
std::set<metrics::AlertKind> alerts_off(const train::AlertSettings& settings);

/// Watches a run on the rank that leads, until it is destroyed.
class RunWatch {
 public:
  /// `recipe` must outlive this. `resume`: resume_command() without optim.lr.
  RunWatch(const train::Recipe& recipe, std::string resume)
      : recipe_(recipe), resume_(std::move(resume)) {}

  /// From here on; `trainer` must be destroyed before this. Throws Error(kUser) for an address of
  /// metrics.* that cannot be served at; with `takes_over`, when the rank that led is lost, it only
  /// says so, for the run goes on.
  void begin(train::Trainer& trainer, bool takes_over);

 private:
  void watch_for_alerts(train::Trainer& trainer);
  void serve_metrics(train::Trainer& trainer);

  const train::Recipe& recipe_;
  std::string resume_;
  metrics::Observers observers_;
  std::unique_ptr<watch::RunMetrics> metrics_;       // null: not served
  std::unique_ptr<watch::PrometheusServer> server_;  // of metrics_
  std::unique_ptr<watch::AlertWatch> alerts_;        // null: all are off; tells metrics_
  std::unique_ptr<watch::KubeflowStatus> kubeflow_;  // null: no TrainJob wants reports
};

/// The address that metrics.* give.
watch::PrometheusAddress metrics_address(const train::MetricsSettings& settings);

/// Tells of islands that a coordinator has lost, in `dir`, with the command that shows
/// `ledger_dir`.
std::function<void(std::int64_t outer_step, const std::string& why)> island_alerts(
    const std::string& dir, const std::string& ledger_dir, const std::string& webhook);

/// Tells that a rank of a run was lost, for those who start ranks; does nothing when that kind is
/// off.
void tell_rank_lost(const train::TrainConfig& config, std::int64_t step, const std::string& why,
                    const std::string& command);

}  // namespace atl::cli
