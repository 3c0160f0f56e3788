#pragma once

// Pages of metrics for Prometheus, in its text exposition format, version 0.0.4.

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "atoll/base/threads/triple_buffer.h"
#include "atoll/metrics/alert.h"
#include "atoll/metrics/observer.h"
#include "atoll/metrics/sink.h"

namespace atl::watch {

/// The Prometheus type of a family of metrics.
enum class PrometheusType : std::uint8_t { kGauge, kCounter };

/// Builds a page of families, each with its samples.
class PrometheusText {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;

  /// Begins a family; `name` as prometheus_name() gives it, `help` one sentence. False where the
  /// page has a family of that name already; add no samples then. This happens because metrics that
  /// differ only in a slash get the same name.
  bool family(const std::string& name, PrometheusType type, std::string_view help);
  /// Adds a sample to the last family. The number reads back as the same double.
  void sample(double value, const Labels& labels = {});
  const std::string& text() const { return text_; }

 private:
  std::string name_;
  std::set<std::string> begun_;
  std::string text_;
};

/// The name of a family: "atoll_" and `metric`, with '_' for each character that a name may not
/// have. Appends "_value" after a suffix that Prometheus keeps for other types: _total, _sum,
/// _count, _bucket, _info.
std::string prometheus_name(std::string_view metric);

/// The content type of a page.
inline constexpr const char* kPrometheusType = "text/plain; version=0.0.4; charset=utf-8";

/// Adds families about this process, under the names that Prometheus's own clients use: CPU time,
/// memory, start time, open files.
void add_process(PrometheusText& page);

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
