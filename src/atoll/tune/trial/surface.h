#pragma once

// The recorded surface for tests and benchmarks: real runs of a small model, looked up instead of
// trained. bench/tune_surface.toml says how it was made.

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/test_paths.h"
#include "atoll/tune/trial/testing.h"

namespace atl::tune::testing {

/// Final held-out losses at each point of a grid.
class Surface {
 public:
  Surface() {
    const std::string path = (test_source_dir() / "src/atoll/tune/testdata/surface.csv").string();
    std::istringstream lines(read_file(path));
    std::string line;
    std::getline(lines, line);
    const std::vector<std::string> names = fields(line);
    std::vector<std::vector<double>> rows;
    while (std::getline(lines, line)) {
      rows.emplace_back();
      for (const std::string& field : fields(line)) rows.back().push_back(std::stod(field));
      if (rows.back().size() != names.size()) throw damaged_error("{}: \"{}\"", path, line);
    }
    std::vector<Dimension> dimensions;
    for (std::size_t i = 0; i < kSettings; ++i) {
      std::vector<double> values;
      for (const auto& row : rows) values.push_back(row[i]);
      std::sort(values.begin(), values.end());
      values.erase(std::unique(values.begin(), values.end()), values.end());
      Dimension dimension = {.key = names[i],
                             .kind = Dimension::Kind::kOrdered,
                             .low = values.front(),
                             .high = values.back()};
      for (const double value : values) dimension.choices.emplace_back(value);
      dimensions.push_back(std::move(dimension));
    }
    space_ = Space(std::move(dimensions));
    for (const auto& row : rows) {
      losses_[{row.begin(), row.begin() + kSettings}] = row.back();
      if (std::isfinite(row.back())) best_ = std::min(best_, row.back());
    }
  }

  const Space& space() const { return space_; }
  double best() const { return best_; }
  /// A trial's final loss; NaN: it diverged.
  double loss(const Units& units) const {
    std::vector<double> point;
    for (std::size_t i = 0; i < kSettings; ++i) {
      point.push_back(std::get<double>(space_[i].value(units[i])));
    }
    return losses_.at(point);
  }

  /// How many trials a search takes to come within `share` of the best; one more than there are
  /// points when it does not.
  template <typename Loss>
  int trials_to(double share, const std::string& searcher, std::uint64_t seed,
                const Loss& loss) const {
    const auto most = static_cast<int>(losses_.size());
    // A shorter search is the beginning of a longer one.
    for (int trials = 16; trials < 2 * most; trials *= 2) {
      const SimulatedOutcome outcome =
          simulate_study(problem_on(space_, searcher, seed, std::min(trials, most)),
                         {.train = [&](const Trial& trial, std::int64_t) {
                           return std::vector<double>{loss(trial.units)};
                         }});
      for (const Trial& trial : outcome.history.trials()) {
        const bool is_there =
            !trial.measured.empty() && trial.measured.front().values.front() <= best_ * (1 + share);
        if (is_there) return trial.number + 1;
      }
    }
    return most + 1;
  }

 private:
  static constexpr std::size_t kSettings = 4;  // columns before the losses

  static std::vector<std::string> fields(const std::string& line) {
    std::vector<std::string> result;
    std::istringstream stream(line);
    for (std::string field; std::getline(stream, field, ',');) result.push_back(field);
    return result;
  }

  Space space_;
  std::map<std::vector<double>, double> losses_;
  double best_ = std::numeric_limits<double>::infinity();
};

/// Whether a point is among the 30% that are made to diverge: the largest learning rate, and the
/// next one with the smaller two of four batch sizes.
inline bool diverges_on_surface(const Surface& surface, const Units& units) {
  const std::size_t lr = surface.space()[0].index_of(units[0]);
  return lr == 4 || (lr == 3 && surface.space()[2].index_of(units[2]) < 2);
}

}  // namespace atl::tune::testing
