#include "atoll/train/island/pace.h"

#include <algorithm>

namespace atl::train {

namespace {

constexpr std::int64_t kFewest = 10;
// Times a step's own: an evaluation or a checkpoint is not to look like a slow machine.
constexpr double kMost = 20;

}  // namespace

IslandPace::IslandPace(std::int64_t interval) : window_(std::max(kFewest, interval)) {}

// The mean of the first steps, as long as they are fewer than a round.
void IslandPace::stepped(double step_seconds, double now) {
  double paced = step_seconds;
  if (stepped_at_) {
    paced = std::clamp(now - *stepped_at_ - waited_, step_seconds, kMost * step_seconds);
  }
  stepped_at_ = now;
  waited_ = 0;
  const std::int64_t weight = std::min(++num_steps_, window_);
  seconds_ += (paced - seconds_) / static_cast<double>(weight);
}

double IslandPace::steps_per_second() const {
  return num_steps_ == 0 ? 0 : 1 / std::max(seconds_, 1e-9);
}

}  // namespace atl::train
