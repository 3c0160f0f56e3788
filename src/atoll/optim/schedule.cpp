#include "atoll/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "atoll/base/error.h"

namespace atl::optim {

double Schedule::learning_rate(std::int64_t step) const {
  if (step < warmup_steps) {
    return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  }
  std::int64_t decay_begin = warmup_steps;
  if (kind == Kind::kWsd) {
    const auto decay_steps =
        static_cast<std::int64_t>(std::llround(decay_fraction * static_cast<double>(total_steps)));
    decay_begin = std::max(warmup_steps, total_steps - decay_steps);
  }
  // 0 at the first step of the decay, 1 at the run's last step.
  // A decay of a single step is at its end at once.
  const std::int64_t span = total_steps - 1 - decay_begin;
  const double progress =
      span > 0 ? std::clamp(static_cast<double>(step - decay_begin) / static_cast<double>(span),
                            0.0, 1.0)
               : static_cast<double>(decay_begin > 0 && step >= decay_begin);
  switch (kind) {
    case Kind::kConstant:
      return peak;
    case Kind::kLinear:
    case Kind::kWsd:
      return peak * (1.0 - (1.0 - min_ratio) * progress);
    case Kind::kCosine:
      break;
  }
  const double cosine = 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return peak * (min_ratio + (1.0 - min_ratio) * cosine);
}

Schedule::Kind schedule_kind(const std::string& name) {
  if (name == "constant") return Schedule::Kind::kConstant;
  if (name == "linear") return Schedule::Kind::kLinear;
  if (name == "cosine") return Schedule::Kind::kCosine;
  if (name == "wsd") return Schedule::Kind::kWsd;
  throw user_error("optim.schedule is \"{}\"; it must be constant, linear, cosine or wsd", name);
}

}  // namespace atl::optim
