#pragma once

// Words about a step whose loss or gradient is not finite.

#include <string>

#include "atoll/data/samples.h"
#include "atoll/train/step.h"

namespace atl::train {

/// The samples of a step that was not finite, for people.
struct NonfiniteSamples {
  std::string first;   ///< "Samples 3, 4, 5 and 9 more"
  std::string places;  ///< all of them, each with where in the text it is; long
};

/// Names StepResult::nonfinite_samples; `source` is where they are from.
NonfiniteSamples name_nonfinite(const data::SampleSource& source, const StepResult& result);

}  // namespace atl::train
