#pragma once

// Metrics of the commands that run for long and do not train themselves, as Prometheus reads them.

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "atoll/cli/argument_parser.h"
#include "atoll/island/coordinator/service.h"
#include "atoll/launch/agent.h"
#include "atoll/param_server/service.h"
#include "atoll/tune/run/run_study.h"
#include "atoll/watch/prometheus_server.h"

namespace atl::cli {

/// What a command was told of them. The settings metrics.* of a recipe are those of the ranks that
/// it starts.
struct MetricsFlags {
  std::string listen;
  std::string token_file;
  std::string certificate, key;
};

/// Declares --metrics-listen, --metrics-token-file, --metrics-certificate and --metrics-key.
/// `flags` must outlive the parser.
void add_metrics_flags(ArgumentParser& parser, MetricsFlags& flags);

/// Serves `page` where `flags` ask for it; null where they do not. Throws as PrometheusServer.
std::unique_ptr<watch::PrometheusServer> serve_metrics(const MetricsFlags& flags,
                                                       std::function<std::string()> page);

/// Pages, by what they are of. No label has text of a run.
std::string to_page(const island::CoordinatorStatus& status);
std::string to_page(const launch::LaunchStatus& status);
std::string to_page(const param_server::SchedulerStatus& status);
std::string to_page(const param_server::ServerStatus& status);

/// What a study's history amounts to.
struct StudyStatus {
  std::array<int, 5> trials = {};  ///< by tune::End; kNone: not over
  int running = 0;
  std::int64_t results = 0;
  std::int64_t tokens = 0;
  std::vector<double> best;  ///< of each objective, of a trial that is among the best; empty: none
};
StudyStatus status_of(const tune::Study& study, const tune::History& history, int num_running);
std::string to_page(const StudyStatus& status);

/// A status that one thread sets and another reads.
template <typename Status>
class SharedStatus {
 public:
  void set(Status status) {
    const std::lock_guard lock(mutex_);
    status_ = std::move(status);
  }
  Status get() const {
    const std::lock_guard lock(mutex_);
    return status_;
  }

 private:
  mutable std::mutex mutex_;
  Status status_;
};

}  // namespace atl::cli
