#pragma once

// A parser of lines of metrics.jsonl for drawing. It is faster than metrics::parse_jsonl, and skips
// members that it does not know.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace atl::watch {

/// The content of a line. Views are valid until the parser parses the next line.
struct MetricsLine {
  std::int64_t step = 0;
  double time_s = 0;  ///< Unix seconds; 0: the line has no time
  std::vector<std::pair<std::string_view, double>> numbers;  ///< also "NaN", "Infinity"
  std::vector<std::pair<std::string_view, std::string_view>> texts;
};

/// Parses lines, one after another. Keeps its memory for the next line.
class MetricsLineParser {
 public:
  MetricsLineParser();
  ~MetricsLineParser();

  /// Fills `line` from `text`. False where `text` is not a JSON object with an integer "step".
  /// Members that are neither numbers nor texts are left out: another version of atoll wrote them.
  bool parse(std::string_view text, MetricsLine& line);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace atl::watch
