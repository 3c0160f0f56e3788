#pragma once

#include <cstdint>
#include <string>

namespace atl::optim {

/// How the learning rate moves over a run; a pure function of the step.
struct Schedule {
  enum class Kind {
    kConstant,
    kLinear,  ///< straight down to min_ratio at the last step
    kCosine,  ///< half a cosine down to min_ratio (Loshchilov & Hutter 2017)
    kWsd,     ///< warm-up, stable, decay: constant, then straight down (Hu et al. 2024)
  };
  Kind kind = Kind::kCosine;
  double peak = 0;                ///< learning rate after warm-up
  double min_ratio = 0.1;         ///< the last step's learning rate over the peak
  std::int64_t warmup_steps = 0;  ///< straight up from peak / warmup_steps
  std::int64_t total_steps = 1;
  double decay_fraction = 0.2;  ///< kWsd: the part of all steps that decays

  /// The learning rate of update `step`, counted from 0.
  double learning_rate(std::int64_t step) const;
};

/// "constant", "linear", "cosine" or "wsd"; throws Error(kUser) for anything else.
Schedule::Kind schedule_kind(const std::string& name);

}  // namespace atl::optim
