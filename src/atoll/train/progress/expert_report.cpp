#include "atoll/train/progress/expert_report.h"

#include <algorithm>

namespace atl::train {

namespace {

using nn::ExpertLoad;

// The busiest and the idlest expert of a block.
void count_load(const ExpertLoad& load, ExpertReport& report) {
  double most = 0;
  double least = load.chose(0);
  double choices = 0;
  for (std::int64_t e = 0; e < load.num_experts(); ++e) {
    most = std::max(most, load.chose(e));
    least = std::min(least, load.chose(e));
    choices += load.chose(e);
  }
  const double mean = choices / static_cast<double>(load.num_experts());
  if (mean == 0) return;
  report.least_over_mean = std::min(report.least_over_mean, least / mean);
  if (most / mean <= report.most_over_mean) return;
  report.most_over_mean = most / mean;
  report.block = load.block;
}

}  // namespace

ExpertReport take_expert_report(const std::vector<std::unique_ptr<ExpertLoad>>& loads,
                                comm::Group* group) {
  ExpertReport report = {.least_over_mean = 1};
  double tokens = 0;
  double choices = 0;
  double dropped = 0;
  for (const auto& load : loads) {
    load->collect();
    if (group != nullptr) group->all_reduce(load->on_host());
    count_load(*load, report);
    for (std::int64_t e = 0; e < load->num_experts(); ++e) choices += load->chose(e);
    tokens += load->sum(ExpertLoad::kTokens);
    dropped += load->sum(ExpertLoad::kDropped);
    report.balance_loss += load->sum(ExpertLoad::kBalanceLoss);
    report.z_loss += load->sum(ExpertLoad::kZLoss);
    load->clear();
  }
  if (tokens == 0) return report;
  report.dropped_fraction = dropped / choices;
  report.balance_loss /= tokens;
  report.z_loss /= tokens;
  return report;
}

}  // namespace atl::train
