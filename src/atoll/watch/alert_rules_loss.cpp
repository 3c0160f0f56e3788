// Rules about the loss, and RecentValues.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "atoll/base/quantity.h"
#include "atoll/watch/alert_rules.h"

#include <fmt/format.h>

namespace atl::watch {

namespace {

// In the first steps the loss of a new model falls and its noise is not known, so that only an
// exploding loss raises an alert.
constexpr std::size_t kFewestLosses = 16;
constexpr std::size_t kFewestFirst = 1;
constexpr double kFirstTimes = 2, kFirstNats = 2;
constexpr double kSpikeDeviations = 8;
constexpr double kSpikePart = 0.1;
constexpr double kBeyondLargest = 1.5;
constexpr std::int64_t kQuietSteps = 32;
// For normally distributed noise the standard deviation is so many times the median deviation.
constexpr double kNormal = 1.4826;

constexpr double kDivergencePart = 0.05;
constexpr double kDivergenceErrors = 6;

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void RecentValues::add(double value) {
  values_.push_back(value);
  if (values_.size() > most_) values_.pop_front();
}

double RecentValues::median() const {
  return values_.empty() ? 0 : median_of({values_.begin(), values_.end()});
}

double RecentValues::quantile(double part) const {
  if (values_.empty()) return 0;
  std::vector<double> sorted(values_.begin(), values_.end());
  const auto at = std::min(sorted.size() - 1,
                           static_cast<std::size_t>(part * static_cast<double>(sorted.size())));
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(at), sorted.end());
  return sorted[at];
}

double RecentValues::mean() const {
  const double sum = std::accumulate(values_.begin(), values_.end(), 0.0);
  return values_.empty() ? 0 : sum / static_cast<double>(values_.size());
}

double RecentValues::largest() const {
  return values_.empty() ? 0 : *std::max_element(values_.begin(), values_.end());
}

double RecentValues::median_deviation() const {
  if (values_.empty()) return 0;
  const double middle = median();
  std::vector<double> distances;
  distances.reserve(values_.size());
  for (const double value : values_) distances.push_back(std::abs(value - middle));
  return median_of(std::move(distances));
}

double RecentValues::standard_deviation() const {
  if (values_.size() < 2) return 0;
  const double middle = mean();
  double sum = 0;
  for (const double value : values_) sum += (value - middle) * (value - middle);
  return std::sqrt(sum / static_cast<double>(values_.size() - 1));
}

std::optional<double> SpikeRule::most() const {
  const double largest = before_.largest();
  if (before_.size() < kFewestFirst) return std::nullopt;
  if (before_.size() < kFewestLosses) return kFirstTimes * largest + kFirstNats;
  const double usual = before_.median();
  return usual + std::max({kSpikeDeviations * kNormal * before_.median_deviation(),
                           kSpikePart * std::abs(usual), kBeyondLargest * (largest - usual)});
}

std::string SpikeRule::step(double loss) {
  std::string text;
  quiet_ = std::max<std::int64_t>(0, quiet_ - 1);
  const std::optional<double> limit = most();
  if (limit && loss > *limit) {
    if (quiet_ == 0) {
      text = fmt::format("the loss is {:.4f}, and was {:.4f} (median of {}, noise {:.4f})", loss,
                         before_.median(), counted(std::ssize(before_.values()), "step"),
                         kNormal * before_.median_deviation());
    }
    quiet_ = kQuietSteps;
  }
  // A spike counts among the losses before the next step, so that a loss that stays high raises one
  // alert only.
  before_.add(loss);
  return text;
}

std::string DivergenceRule::step(double loss) {
  recent_.add(loss);
  constexpr std::size_t kSteps = 50;
  if (recent_.size() < kSteps) return "";
  const double mean = recent_.mean();
  if (!best_ || mean < *best_) {
    best_ = mean;
    has_spoken_ = false;
    return "";
  }
  const double error = recent_.standard_deviation() * std::sqrt(2.0 / static_cast<double>(kSteps));
  const double most = std::max(kDivergencePart * std::abs(*best_), kDivergenceErrors * error);
  if (mean - *best_ < most / 2) has_spoken_ = false;
  if (mean - *best_ <= most || has_spoken_) return "";
  has_spoken_ = true;
  return fmt::format(
      "the mean loss of the last {} steps is {:.4f}, and was {:.4f} before; it rises", kSteps, mean,
      *best_);
}

}  // namespace atl::watch
