#pragma once

// Metrics as Prometheus reads them (text exposition format, version 0.0.4).

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

/// The last values of a run's metrics as a page: those of metrics.jsonl under their own names, with
/// units that Prometheus has (step_ms: atoll_step_seconds), what the last step was like on each
/// rank, and alerts by kind. Labels are ranks and kinds: no text of the run. Any thread may ask for
/// the page while one writes.
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
  mutable std::mutex mutex_;
  std::map<std::string, double> last_;  // by the names of metrics.jsonl
  metrics::StepFacts facts_;
  double stepped_at_s_ = 0;  // since 1970
  std::int64_t steps_ = 0;   // of this process
  std::int64_t checkpoints_ = 0;
  std::int64_t ranks_lost_ = 0;
  std::map<metrics::AlertKind, std::int64_t> alerts_;
};

}  // namespace atl::watch
