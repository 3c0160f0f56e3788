#pragma once

// A line of metrics.jsonl, read for drawing: faster than metrics::parse_jsonl, and forgiving.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace atl::watch {

/// What a line says. Views last until the next line is parsed.
struct MetricsLine {
  std::int64_t step = 0;
  double time_s = 0;  ///< since 1970; 0: the line does not say
  std::vector<std::pair<std::string_view, double>> numbers;  ///< also "NaN" and "Infinity"
  std::vector<std::pair<std::string_view, std::string_view>> texts;
};

/// Parses lines, one after another, with memory that is kept between them.
class MetricsLineParser {
 public:
  MetricsLineParser();
  ~MetricsLineParser();

  /// False for what is not an object with a whole "step". Members that are neither numbers nor
  /// texts are left out: they are of another version of atoll.
  bool parse(std::string_view text, MetricsLine& line);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace atl::watch
