#pragma once

// Who watches a run from within the program that trains it.

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "atoll/train/recipe.h"
#include "atoll/train/trainer.h"
#include "atoll/watch/alert_watch.h"

namespace atl::cli {

/// The command line that goes on with a run of `num_ranks` ranks, as a shell takes it; without
/// alerts.webhook, which may hold a key, and without the setting `without`, which the caller adds.
std::string resume_command(const std::string& recipe, const std::vector<std::string>& overrides,
                           int num_ranks, const std::string& without = "");

/// The kinds that alerts.off names.
std::set<metrics::AlertKind> alerts_off(const train::AlertSettings& settings);

/// Watches a run on the rank that leads, until it is destroyed.
class RunWatch {
 public:
  /// `recipe` must outlive this. `resume`: resume_command() without optim.lr.
  RunWatch(const train::Recipe& recipe, std::string resume)
      : recipe_(recipe), resume_(std::move(resume)) {}

  /// From here on; `trainer` must be destroyed before this.
  void begin(train::Trainer& trainer);

 private:
  const train::Recipe& recipe_;
  std::string resume_;
  std::unique_ptr<watch::AlertWatch> alerts_;  // null: all are off
};

/// Tells of islands that a coordinator has lost, in `dir`, with the command that shows
/// `ledger_dir`.
std::function<void(std::int64_t outer_step, const std::string& why)> island_alerts(
    const std::string& dir, const std::string& ledger_dir, const std::string& webhook);

/// Tells that a rank of a run was lost, for those who start ranks; does nothing when that kind is
/// off.
void tell_rank_lost(const train::TrainConfig& config, std::int64_t step, const std::string& why,
                    const std::string& command);

}  // namespace atl::cli
