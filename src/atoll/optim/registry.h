#pragma once

// The optimizers there are. Each is a file that ends with its OptimizerKind, and a line in
// registry.cpp; whoever needs to know something about optimizers asks here.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "atoll/optim/optimizer.h"
#include "atoll/optim/options.h"

namespace atl::optim {

/// How a message calls an option: "optim.momentum (0, recipe.toml:3)" where the place is known.
using NameOption = std::function<std::string(const std::string& option)>;

/// An update rule: all that the rest of the program knows of it.
struct OptimizerKind {
  const char* name;             ///< "muon": optim.kind in a run's settings
  const char* doc;              ///< what it is, beginning with its name
  std::vector<Option> options;  ///< what it reads, in the order of the reference
  /// Names of the state that it keeps beside "master", as checkpoints have them. With some options
  /// it may keep less; it has no other.
  std::vector<const char*> state_vectors;
  /// Whether an update reads a hidden matrix as a whole. Ranks that share state then have each
  /// matrix on one of them.
  bool whole_matrices = false;
  /// Whether it heeds ParamRange::lr_scale, and its updates do not grow with gradients: what muP's
  /// learning rates are for.
  bool scales_rates = false;
  /// Refuses options that do not go together, with an Error(kUser) that says what to do; null where
  /// all do. Each value alone has been checked. `named` is for the message.
  void (*check)(const OptimizerOptions& options, const NameOption& named) = nullptr;
  /// Makes the optimizer. `options` have a value for each of `options` above, and are checked; flat
  /// and ranges are as for make_optimizer.
  std::unique_ptr<Optimizer> (*make)(const OptimizerOptions& options, Spec flat,
                                     std::span<const ParamRange> ranges) = nullptr;

  bool reads(const std::string& option) const;
};

/// All optimizers, the default first, in the order that texts list them.
std::span<const OptimizerKind> optimizer_kinds();
/// The one called `name`; throws Error(kUser) that lists all for another.
const OptimizerKind& find_optimizer(const std::string& name);

/// While it lives, there is another optimizer: of an extension, or of a test. It is used wherever
/// the program's own are. Of several, the last that was made ends first. Not while runs go on.
class AddedOptimizer {
 public:
  explicit AddedOptimizer(OptimizerKind kind);
  ~AddedOptimizer();
  AddedOptimizer(const AddedOptimizer&) = delete;
  AddedOptimizer& operator=(const AddedOptimizer&) = delete;
};

/// Throws Error(kUser) for a value out of its range, for one that this optimizer does not read, and
/// for what its own check refuses.
void check_options(const OptimizerKind& kind, const OptimizerOptions& options,
                   const NameOption& named = option_key);

/// As make_optimizer(options, flat, ranges), of a kind that need not be in the registry; the name
/// in `options` does not count.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerKind& kind,
                                          const OptimizerOptions& options, Spec flat,
                                          std::span<const ParamRange> ranges);

}  // namespace atl::optim
