#pragma once

// Where a search begins, when something is known before its first trial.

#include <filesystem>
#include <string>
#include <vector>

#include "atoll/tune/trial/study.h"

namespace atl::tune {

/// A point that is tried before the searcher is asked.
struct Start {
  Units units;  ///< canonical
  std::string why;
};

/// What study.prior names, in its order, each point once:
///   "recipe"    the recipe's own settings;
///   "step-law"  the same with the learning rate and batch size of Step Law (Li et al. 2025,
///               arXiv 2503.04715): lr = 1.79 N^-.713 D^.307 and D^.571 x .58 tokens a step for N
///               parameters without embeddings and D tokens;
///   a directory of an earlier study: its best settings, as far as the space has them.
/// Values beyond the space's bounds become the bounds. Throws Error(kUser) for a prior that says
/// nothing of this space.
std::vector<Start> starts_of(const Study& study);

/// Step Law's two values.
struct StepLaw {
  double lr = 0;
  double batch_tokens = 0;  ///< tokens a step
};
StepLaw step_law(double parameters, double tokens);

/// The same from a file of an earlier call, or made and written there: a study that goes on begins
/// where it began, whatever has become of the studies that it names.
std::vector<Start> stored_starts(const Study& study, const std::filesystem::path& path);

}  // namespace atl::tune
