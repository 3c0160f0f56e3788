#pragma once

// Pages of metrics for Prometheus, in its text exposition format, version 0.0.4.

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace atl::metrics {

/// The Prometheus type of a family of metrics.
enum class PrometheusType : std::uint8_t { kGauge, kCounter, kHistogram };

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
  /// Adds a whole family of a histogram: of each bucket its upper bound, ascending, and how many
  /// values are in it; `counts` has one more, for those above all bounds. Adds nothing where the
  /// page has a family of that name.
  void histogram(const std::string& name, std::string_view help, std::span<const double> bounds,
                 std::span<const std::uint64_t> counts, double sum);
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

}  // namespace atl::metrics
