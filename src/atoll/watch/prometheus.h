#pragma once

// Metrics as Prometheus reads them (text exposition format, version 0.0.4).

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

/// What Prometheus takes the numbers of a family for.
enum class PrometheusType : std::uint8_t { kGauge, kCounter };

/// Builds a page: families, each with its samples.
class PrometheusText {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;

  /// Begins a family; `name` as prometheus_name() gives it, `help` one sentence. False, and it is
  /// none, where the page has one of that name: two names may differ in a slash alone.
  bool family(const std::string& name, PrometheusType type, std::string_view help);
  /// A sample of the family that was begun last. Numbers read back as the same double.
  void sample(double value, const Labels& labels = {});
  const std::string& text() const { return text_; }

 private:
  std::string name_;
  std::set<std::string> begun_;
  std::string text_;
};

/// The name of a family: "atoll_" and `metric` with what no name may have as '_'. Words that
/// conventions keep for other types (a last _total, _sum, _count, _bucket, _info) get "_value"
/// behind.
std::string prometheus_name(std::string_view metric);

/// The content type of a page.
inline constexpr const char* kPrometheusType = "text/plain; version=0.0.4; charset=utf-8";

/// Families of this process by the names that Prometheus's own clients give them: CPU time, memory,
/// when it began, and files that are open.
void add_process(PrometheusText& page);

/// The last values of a run's metrics as a page: those of metrics.jsonl under their own names, with
/// units that Prometheus has (step_ms: atoll_step_seconds), what the last step was like on each
/// rank, and alerts by kind. Labels are ranks and kinds: no text of the run.
///
/// What Sink and Observer have is for the one thread that trains, and never waits there. Any thread
/// may ask for the page, and tell of alerts.
class RunMetrics : public metrics::Sink, public metrics::Observer {
 public:
  /// Families of names that are not known before; further ones are left out.
  static constexpr std::size_t kMostFamilies = 256;
  /// Ranks that have a sample each.
  static constexpr std::size_t kMostRanks = 4096;

  void write(const metrics::Record& record) override;
  void flush() override {}
  void stepped(const metrics::StepFacts& facts) override;
  void paused(metrics::Pause) override {}
  void resumed() override {}
  void checkpoint_begun(std::int64_t) override {}
  void checkpoint_saved(const std::filesystem::path& path) override;
  void ranks_lost(std::int64_t step, int before, int now, const std::string& why) override;
  /// Counts an alert that was told.
  void alerted(const metrics::Alert& alert);

  std::string page() const;

 private:
  struct Numbers {
    std::vector<std::pair<std::string, double>> last;  // by the names of metrics.jsonl
    metrics::StepFacts facts;
    double stepped_at_s = 0;   // since 1970
    double steps_seconds = 0;  // of all steps together
    std::int64_t steps = 0;    // of this process
    std::int64_t skipped = 0;  // that were not finite
    std::int64_t tokens = 0;
    std::int64_t checkpoints = 0;
    std::int64_t ranks_lost = 0;
  };
  void publish();

  Numbers numbers_;                            // of the thread that trains
  std::map<std::string, std::size_t> places_;  // in numbers_.last
  std::array<std::atomic<std::int64_t>, metrics::kNumAlertKinds> alerts_ = {};
  mutable std::mutex reader_;  // one reads at a time
  mutable TripleBuffer<Numbers> published_;
};

}  // namespace atl::watch
