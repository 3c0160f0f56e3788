#pragma once

// The page of a run's metrics for Prometheus.

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "atoll/base/threads/triple_buffer.h"
#include "atoll/metrics/alert.h"
#include "atoll/metrics/observer.h"
#include "atoll/metrics/prometheus_text.h"
#include "atoll/metrics/sink.h"

namespace atl::watch {

/// A page with the last values of a run's metrics: those of metrics.jsonl in Prometheus's units
/// (step_ms becomes atoll_step_seconds), facts of the last step and its time on each rank, and
/// counts of alerts by kind. Labels are ranks and kinds only, never texts of the run.
///
/// The functions of Sink and Observer are for the training thread and never wait. page() and
/// alerted() may be called from any thread.
class RunMetrics : public metrics::Sink, public metrics::Observer {
 public:
  /// Metrics that the page can have; later new names are left out.
  static constexpr std::size_t kMostFamilies = 256;
  /// Ranks on the page; later ranks are left out.
  static constexpr std::size_t kMostRanks = 4096;

  void write(const metrics::Record& record) override;
  void flush() override {}
  void stepped(const metrics::StepFacts& facts) override;
  void paused(metrics::Pause) override {}
  void resumed() override {}
  void checkpoint_begun(std::int64_t) override {}
  void checkpoint_saved(const std::filesystem::path& path) override;
  void ranks_lost(std::int64_t step, int before, int now, const std::string& why) override;
  /// Counts an alert.
  void alerted(const metrics::Alert& alert);

  /// The page as it is now.
  std::string page() const;

 private:
  struct Numbers {
    std::vector<std::pair<std::string, double>> last;  // by the names of metrics.jsonl
    metrics::StepFacts facts;
    double stepped_at_s = 0;   // end of the last step, Unix seconds
    double steps_seconds = 0;  // of all steps of this process together
    std::int64_t steps = 0;    // of this process
    std::int64_t skipped = 0;  // steps that were not finite
    std::int64_t tokens = 0;
    std::int64_t checkpoints = 0;
    std::int64_t ranks_lost = 0;
  };
  void publish();

  Numbers numbers_;                            // for the training thread only
  std::map<std::string, std::size_t> places_;  // in numbers_.last
  std::array<std::atomic<std::int64_t>, metrics::kNumAlertKinds> alerts_ = {};
  mutable std::mutex reader_;  // published_ allows one reader at a time
  mutable TripleBuffer<Numbers> published_;
};

}  // namespace atl::watch
