#pragma once

// The coordinate check of muP (Yang et al. 2022, "Tensor Programs V", appendix D.1): whether what
// training changes in a model's activations grows with its width.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "atoll/train/config/config.h"

namespace atl::tune {

/// What is trained, beside the recipe.
struct CoordinateOptions {
  std::vector<std::int64_t> widths = {64, 128, 256, 512, 1024};
  std::int64_t steps = 10;
  std::int64_t seeds = 3;  ///< that are averaged over, from run.seed on
};

/// What some steps have changed.
struct CoordinateChange {
  std::int64_t width = 0, step = 0;
  std::string activation;  ///< "embedding", "block 0", "logits"
  double rms = 0;          ///< of the change on fixed tokens; geometric mean over seeds
};

/// A recipe's model at each width in one parametrisation.
struct CoordinateCheck {
  std::string parametrisation;  ///< "mup" or "standard"
  std::int64_t base_width = 0, base_head_dim = 0;
  std::vector<std::int64_t> widths;
  std::vector<std::string> activations;
  std::vector<CoordinateChange> changes;  ///< by step, then width, then activation

  double rms(std::int64_t width, std::int64_t step, const std::string& activation) const;
  /// Of log RMS over log width, by least squares.
  double slope(const std::string& activation, std::int64_t step) const;
  /// Of all activations, after the last step.
  double largest_slope() const;
  std::int64_t last_step() const { return changes.back().step; }
};

/// `config` with the model's shape at another width: as many heads of another size, or where
/// model.head_dim is set, others as many; model.intermediate_size in proportion. Throws
/// Error(kUser) where these are not whole numbers.
train::TrainConfig at_width(const train::TrainConfig& config, std::int64_t width);

/// Trains a recipe's model at each width, alone in this process and in f32, with optim.lr at every
/// step. The base of muP is what the recipe says, or else the first width. Throws Error(kUser)
/// for a recipe whose model has a shape of its own (model.from, model.config), and for what
/// train::validate_parametrisation refuses.
CoordinateCheck check_coordinates(const train::TrainConfig& config,
                                  const std::string& parametrisation,
                                  const CoordinateOptions& options);

/// A table for people: widths, and the slope of each activation.
std::string describe(const CoordinateCheck& check);
/// All changes, with a head: parametrisation, step, width, activation, RMS.
std::string to_csv(const std::vector<CoordinateCheck>& checks);
/// A panel for each check: log RMS of the last step's change over log width.
std::string to_svg(const std::vector<CoordinateCheck>& checks);

}  // namespace atl::tune
