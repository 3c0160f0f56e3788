// Rules about the time of steps, pauses and checkpoints, and about room on the disk.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "atoll/base/quantity.h"
#include "atoll/watch/alert_rules.h"

namespace atl::watch {

namespace {

// Rules about slow steps judge the last steps that together took kEvidenceSeconds, and at least
// kEvidenceSteps of them. So slow steps raise an alert after two steps, or within 5 s.
constexpr double kEvidenceSeconds = 3;
constexpr std::size_t kEvidenceSteps = 2;
constexpr std::size_t kMostEvidence = 1000;
constexpr std::size_t kFewestUsual = 20;
constexpr double kSlowSteps = 2;
// Where other programs share the machine, some steps are always slow. So the limit is at least the
// kLongPart quantile of the usual steps, times kBeyondLong.
constexpr double kLongPart = 0.95;
constexpr double kBeyondLong = 1.5;
constexpr double kGone = 0.75;  // below this part of the limit the slowness is over
constexpr double kSlowRank = 1.5;
constexpr double kPartOfSteps = 0.9;

constexpr double kShortestStall = 4;
constexpr double kStallSteps = 2;
constexpr std::size_t kFewestSteps = 3;
constexpr double kShortestPause = 60;
constexpr double kLongPause = 3;

constexpr double kFirstCheckpoint = 60;
constexpr double kSlowDisk = 1e7;  // bytes a second
constexpr double kLateCheckpoint = 3;

constexpr std::uint64_t kLeastRoom = std::uint64_t{64} << 20;

// The median; of an even number of values the smaller of the two in the middle.
double lower_median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string duration(double seconds) {
  return seconds < 1 ? fmt::format("{:.0f} ms", 1e3 * seconds) : fmt::format("{:.1f} s", seconds);
}

const char* name_of(metrics::Pause what) {
  constexpr const char* kNames[] = {"an evaluation", "waiting for other islands",
                                    "meeting the other ranks"};
  return kNames[static_cast<int>(what)];
}

// Each rank's time over the median of the others'.
std::vector<double> ratios_of(const std::vector<double>& times) {
  std::vector<double> ratios;
  for (std::size_t rank = 0; rank < times.size(); ++rank) {
    std::vector<double> others = times;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(rank));
    const double usual = lower_median(std::move(others));
    ratios.push_back(usual > 0 ? times[rank] / usual : 1);
  }
  return ratios;
}

}  // namespace

std::string ThroughputRule::step(double seconds) {
  evidence_.push_back(seconds);
  double sum = 0;
  for (const double one : evidence_) sum += one;
  // Steps older than the evidence say what steps usually take.
  while (evidence_.size() > kEvidenceSteps &&
         (sum - evidence_.front() >= kEvidenceSeconds || evidence_.size() > kMostEvidence)) {
    sum -= evidence_.front();
    // The slow steps after an alert must not become the usual ones.
    if (!has_spoken_) usual_.add(evidence_.front());
    evidence_.pop_front();
  }
  if (usual_.size() < kFewestUsual || sum < kEvidenceSeconds) return "";
  const double usual = usual_.median();
  const double slow = lower_median({evidence_.begin(), evidence_.end()});
  const double most = std::max(kSlowSteps * usual, kBeyondLong * usual_.quantile(kLongPart));
  if (slow < kGone * most) has_spoken_ = false;
  if (slow <= most || has_spoken_) return "";
  has_spoken_ = true;
  return fmt::format("a step takes {}, and took {}: throughput is {:.0f}% of what it was",
                     duration(slow), duration(usual), 100 * usual / slow);
}

std::string StragglerRule::step(double seconds, const std::vector<double>& rank_seconds) {
  if (rank_seconds.size() < 2) return "";
  if (!evidence_.empty() && evidence_.front().ratios.size() != rank_seconds.size()) {
    evidence_.clear();
    usual_.clear();
    told_of_ = -1;
  }
  std::vector<double> times = rank_seconds;
  if (!ranks_are_equal_) {
    usual_.resize(times.size(), RecentValues(200));
    const bool is_known = usual_.front().size() >= kFewestUsual;
    for (std::size_t rank = 0; rank < times.size(); ++rank) {
      const double usual = usual_[rank].median();
      usual_[rank].add(times[rank]);
      times[rank] = is_known && usual > 0 ? times[rank] / usual : 1;
    }
  }
  evidence_.push_back({seconds, ratios_of(times)});
  double sum = 0;
  for (const Evidence& one : evidence_) sum += one.seconds;
  while (
      evidence_.size() > kEvidenceSteps &&
      (sum - evidence_.front().seconds >= kEvidenceSeconds || evidence_.size() > kMostEvidence)) {
    sum -= evidence_.front().seconds;
    evidence_.pop_front();
  }
  if (evidence_.size() < kEvidenceSteps || sum < kEvidenceSeconds) return "";
  const auto steps = static_cast<double>(evidence_.size());
  for (std::size_t rank = 0; rank < times.size(); ++rank) {
    double slow = 0, ratio = 0;
    for (const Evidence& one : evidence_) {
      slow += one.ratios[rank] > kSlowRank ? 1 : 0;
      ratio += one.ratios[rank] / steps;
    }
    const auto number = static_cast<int>(rank);
    if (number == told_of_ && slow < (1 - kPartOfSteps) * steps) told_of_ = -1;
    if (slow < kPartOfSteps * steps || number == told_of_) continue;
    told_of_ = number;
    return fmt::format("rank {} takes {:.1f} times as long as the others for a micro-batch, in {}",
                       rank, ratio, counted(static_cast<std::int64_t>(evidence_.size()), "step"));
  }
  return "";
}

void StallRule::step(double now_s, double seconds) {
  steps_.add(seconds);
  since_s_ = now_s;
  has_spoken_ = false;
  is_held_ = false;  // steps go on, so the checkpoint is written in the background
}

void StallRule::paused(metrics::Pause what, double now_s) {
  pause_ = what;
  since_s_ = now_s;
  has_spoken_ = false;
}

void StallRule::resumed(double now_s) {
  if (pause_) {
    double& longest = longest_pause_[*pause_];
    longest = std::max(longest, now_s - since_s_);
  }
  pause_.reset();
  since_s_ = now_s;
  has_spoken_ = false;
}

void StallRule::hold(bool is_held, double now_s) {
  is_held_ = is_held;
  since_s_ = now_s;
}

std::string StallRule::tick(double now_s) {
  if (is_held_ || has_spoken_) return "";
  const double passed = now_s - since_s_;
  if (pause_) {
    if (passed <= std::max(kShortestPause, kLongPause * longest_pause_[*pause_])) return "";
    has_spoken_ = true;
    return fmt::format("no step for {}: {} does not end", duration(passed), name_of(*pause_));
  }
  if (steps_.size() < kFewestSteps) return "";
  if (passed <= std::max(kShortestStall, kStallSteps * steps_.largest())) return "";
  has_spoken_ = true;
  return fmt::format("no step has ended for {}, and steps take {}", duration(passed),
                     duration(steps_.median()));
}

void CheckpointRule::begun(std::int64_t step, double now_s) {
  step_ = step;
  began_s_ = now_s;
  has_spoken_ = false;
}

void CheckpointRule::saved(double now_s) {
  if (began_s_) longest_s_ = std::max(longest_s_, now_s - *began_s_);
  began_s_.reset();
}

std::string CheckpointRule::tick(double now_s) {
  if (!began_s_ || has_spoken_) return "";
  const double passed = now_s - *began_s_;
  const double most = longest_s_ > 0 ? std::max(kShortestStall, kLateCheckpoint * longest_s_)
                                     : kFirstCheckpoint + static_cast<double>(bytes_) / kSlowDisk;
  if (passed <= most) return "";
  has_spoken_ = true;
  return fmt::format(
      "the checkpoint of step {} is not written after {}{}", step_, duration(passed),
      longest_s_ > 0 ? fmt::format("; the slowest before took {}", duration(longest_s_)) : "");
}

std::string DiskRule::tick(std::uint64_t free_bytes, std::uint64_t checkpoint_bytes) {
  const std::uint64_t needed = 2 * checkpoint_bytes + kLeastRoom;
  if (free_bytes >= needed) {
    has_spoken_ = false;
    return "";
  }
  if (has_spoken_) return "";
  has_spoken_ = true;
  return fmt::format("the disk of the run has {} left: less than two checkpoints ({}) and {}",
                     format_bytes(free_bytes), format_bytes(2 * checkpoint_bytes),
                     format_bytes(kLeastRoom));
}

}  // namespace atl::watch
