#pragma once

// What moves the anchor by the mean pseudo-gradient of the islands.

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace atl::island {

/// Of all outer optimizers; each reads what it needs. The defaults are DiLoCo's (arXiv 2311.08105).
struct OuterOptimizerOptions {
  std::string kind = "nesterov";  ///< also "sgd", "adam", "delayed_nesterov", "naive_nesterov"
  double lr = 0.7;                ///< above 0
  double momentum = 0.9;          ///< sgd and nesterov; from 0 to below 1
  double beta1 = 0.9;             ///< adam
  double beta2 = 0.95;            ///< adam
  double eps = 1e-8;              ///< adam; above 0
  int islands = 1;                ///< of the run: what the asynchronous kinds divide by
};

/// What an outer step is beside its vectors.
struct OuterStepInfo {
  std::int64_t k = 0;              ///< its number, from 0, among those of its fragment
  double lr = 0;                   ///< instead of the options'; 0: the options'
  std::int64_t arrivals = 0;       ///< pseudo-gradients in the outer steps before
  std::int64_t contributions = 1;  ///< and in this one
};

/// An optimizer over a flat vector that has no state of its own and writes beside what it reads, so
/// that a step can be made, compared between islands, and dropped. Element by element in f32: the
/// bits depend on the arguments alone, and a vector may be cut anywhere. Safe to use from several
/// threads.
class OuterOptimizer {
 public:
  virtual ~OuterOptimizer() = default;

  /// How many floats per parameter it carries from step to step: 0, 1 (momentum), or 2 (adam: first
  /// and second moment). They begin as zeros and lie one vector after the other.
  virtual int num_state_vectors() const = 0;
  /// Whether sums of steps are steps of sums: what the eager algorithm rests on.
  virtual bool is_linear() const = 0;
  /// A step of a vector of n: `mean_delta` is anchor minus parameters, so that it
  /// is taken off. anchor, mean_delta, anchor_out: n; state_in, state_out: num_state_vectors() * n.
  /// Outputs may be their inputs, but must not overlap otherwise.
  virtual void step(std::span<const float> anchor, std::span<const float> mean_delta,
                    std::span<const float> state_in, std::span<float> anchor_out,
                    std::span<float> state_out, const OuterStepInfo& info) const = 0;
};

/// sgd: v = momentum v + Δ; θ -= lr v (without momentum θ -= lr Δ, and no state).
/// nesterov: v = momentum v + Δ; θ -= lr (Δ + momentum v) (arXiv 2503.09799, algorithm 1).
/// adam: as usual, with both bias corrections and no decay.
/// delayed_nesterov, for n islands that come one by one, d = Δ of those that came, times their
/// number / n: θ -= lr d; and when the n-th of a round has come, m = momentum m + the sum of the
/// round's d, and θ -= lr (d + momentum m) instead (arXiv 2401.09135, algorithm 3 with c = 0).
/// Takes the sums of all n as nesterov does, in pieces. naive_nesterov: nesterov with that d at
/// each arrival, n momentum steps a round. Throws Error(kUser) for another kind or a number out of
/// its range.
std::unique_ptr<OuterOptimizer> make_outer_optimizer(const OuterOptimizerOptions& options);

}  // namespace atl::island
