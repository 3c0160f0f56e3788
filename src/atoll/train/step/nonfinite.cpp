#include "atoll/train/step/nonfinite.h"

#include <fmt/format.h>

namespace atl::train {

NonfiniteSamples name_nonfinite(const data::SampleSource& source, const StepResult& result) {
  constexpr std::size_t kShown = 3;
  const std::size_t count = result.nonfinite_samples.size();
  NonfiniteSamples names = {count == 1 ? "Sample " : "Samples ", ""};
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t sample = result.nonfinite_samples[i];
    const char* between = i == 0 ? "" : ", ";
    names.places += fmt::format("{}{} ({})", between, sample, source.describe(sample));
    if (i < kShown) names.first += fmt::format("{}{}", between, sample);
  }
  if (count > kShown) names.first += fmt::format(" and {} more", count - kShown);
  return names;
}

}  // namespace atl::train
