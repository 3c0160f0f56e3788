#pragma once

// Tells Kubeflow Trainer how far a run is, where it has set an address for that. Source: proposal
// 2779 of Kubeflow Trainer (status.trainerStatus of a TrainJob).

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "atoll/metrics/observer.h"

namespace atl::watch {

/// Where a TrainJob takes reports.
struct KubeflowServer {
  std::string url;         ///< KUBEFLOW_TRAINER_SERVER_URL
  std::string ca_file;     ///< KUBEFLOW_TRAINER_SERVER_CA_CERT; empty: the system's authorities
  std::string token_file;  ///< KUBEFLOW_TRAINER_SERVER_TOKEN; empty: no token is sent
};

/// From this process's environment; nothing outside of a TrainJob that wants reports. An address
/// that is none is warned of, and nothing is reported.
std::optional<KubeflowServer> kubeflow_server();

/// Posts progress, remaining time and metrics at once, then at most every kEvery, and at the end.
/// Works on a thread of its own. What goes wrong is logged once, and the run goes on.
class KubeflowStatus : public metrics::Observer {
 public:
  /// Kubeflow asks for no more than one report in 5 seconds.
  static constexpr std::chrono::seconds kEvery{5};

  /// A run that begins with `first_step` and ends after `last_step` steps.
  KubeflowStatus(KubeflowServer server, std::int64_t first_step, std::int64_t last_step);
  /// Reports 100 percent where the last step was taken and no exception is on its way, or else
  /// where the run has stopped.
  ~KubeflowStatus() override;

  void stepped(const metrics::StepFacts& facts) override;
  void paused(metrics::Pause) override {}
  void resumed() override {}
  void checkpoint_begun(std::int64_t) override {}
  void checkpoint_saved(const std::filesystem::path&) override {}
  void ranks_lost(std::int64_t, int, int, const std::string&) override {}

 private:
  // What is known after a step.
  struct Status {
    std::int64_t step = 0;
    double seconds_each = 0;  // of the steps so far, the newest counting most; 0: not known yet
    double loss = 0;
    double grad_norm = 0;
    double tokens_per_s = 0;
  };

  void report_all();
  void report(const Status& status, bool is_done);
  std::string json(const Status& status, bool is_done) const;

  const KubeflowServer server_;
  const std::int64_t first_step_;
  const std::int64_t last_step_;
  const int exceptions_;  // on their way when this was made
  std::mutex mutex_;      // guards what follows
  std::condition_variable changed_;
  Status status_;
  bool is_new_ = true;
  bool ends_ = false;
  bool is_done_ = false;
  std::string last_failure_;  // of thread_ alone
  std::thread thread_;
};

}  // namespace atl::watch
