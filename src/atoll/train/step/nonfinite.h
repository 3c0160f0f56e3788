#pragma once

// Messages about a step whose loss or gradient is not finite.

#include <string>

#include "atoll/data/samples.h"
#include "atoll/train/step/step.h"

namespace atl::train {

/// The samples of a step that was not finite, for people.
struct NonfiniteSamples {
  std::string first;   ///< "Samples 3, 4, 5 and 9 more"
  std::string places;  ///< all samples, each with its place in the text; long
};

/// Describes StepResult::nonfinite_samples, which are samples of `source`.
NonfiniteSamples name_nonfinite(const data::SampleSource& source, const StepResult& result);

}  // namespace atl::train
