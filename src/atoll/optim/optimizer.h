#pragma once

// Optimizers work on flat vectors of values and gradients, cut into ranges of equal treatment.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "atoll/comm/group.h"
#include "atoll/ops/run.h"
#include "atoll/optim/options.h"
#include "atoll/tensor/arena.h"

namespace atl::optim {

struct MatrixParts;

/// A run of elements of the flat parameter vector that are treated alike. What no range covers is
/// not trained, or not by this rank.
struct ParamRange {
  std::int64_t begin = 0;
  std::int64_t count = 0;  ///< padding included
  bool decay = false;      ///< Does weight decay apply?
  /// A hidden weight matrix, which Muon orthogonalises: the first rows * cols elements. Other
  /// optimizers look at elements alone.
  bool matrix = false;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  double lr_scale = 1;  ///< multiplies the learning rate of updates, not that of weight decay
  /// Where these elements begin in the values and in the gradients that update() is given, when
  /// these are a rank's share of the flat vector; -1: at `begin`, they are the whole vector.
  std::int64_t value_begin = -1;
  std::int64_t grad_begin = -1;
  /// Of these elements the first so many count in norms; the others are on another rank too, which
  /// counts them. -1: all.
  std::int64_t counted = -1;
  /// Of a matrix that ranks have parts of, where rows and cols are those of this part; null: it is
  /// whole. Must outlive the optimizer.
  const MatrixParts* parts = nullptr;
  /// Stochastic rounding draws for these elements as for those from here on, of the flat vector of
  /// the whole model; -1: `begin`, this is the whole model.
  std::int64_t draw_begin = -1;

  std::int64_t in_draws() const { return draw_begin < 0 ? begin : draw_begin; }
  std::int64_t in_values() const { return value_begin < 0 ? begin : value_begin; }
  std::int64_t in_grads() const { return grad_begin < 0 ? begin : grad_begin; }
};

/// What keeps the bits of an update that bf16 values are too coarse for.
enum class Masters {
  kF32,         ///< an f32 copy of the values is optimizer state, and bf16 values round to nearest
  kStochastic,  ///< nothing: bf16 values are rounded up or down at random, right on average
};

/// "f32" or "stochastic"; throws Error(kUser) for anything else.
Masters masters(const std::string& name);

/// What an optimizer is made with; the learning rate comes with each step.
struct OptimizerOptions {
  std::string kind = "adamw";  ///< a name of registry.h
  /// What this kind reads, by name: see its file. What is left out has its default.
  OptionValues values;
  double peak_lr = 0;  ///< highest learning rate of the run, where an option is relative to it
  Masters masters = Masters::kF32;  ///< of bf16 values; f32 and f64 values are their own

  /// The value of an option, which must be there and of this type.
  double number(const std::string& name) const;
  bool flag(const std::string& name) const;
  const std::string& word(const std::string& name) const;
};

/// What one update is given beside values and gradients.
struct StepArgs {
  double lr = 0;
  double grad_scale = 1;  ///< multiplies every gradient first: clipping
  std::int64_t step = 1;  ///< number of the update, from 1
  /// The ranks that have the other parts of this one's matrices; null: all are whole. They make the
  /// same update of ranges in the same order, each of its parts.
  comm::Group* parts = nullptr;
};

/// A contiguous piece of optimizer state: one number for each element [begin, begin +
/// tensor.num_elements()) of the flat vector. Pieces of one name never overlap, and ranges that
/// touch share one.
struct StateTensor {
  std::string name;
  std::int64_t begin = 0;
  Tensor tensor;  ///< f32 or f64, flat
};

/// Changes a flat vector of values, given its gradients. Element by element (Muon: matrix by
/// matrix, on whichever rank puts it together), so neither the number of threads nor the order of
/// ranges changes a bit.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// Asks for the state; group "optimizer".
  virtual void request(MemoryPlan& plan) = 0;
  virtual void bind(const Arena& arena) = 0;
  /// Copies the values into the masters, where there are any: after values were initialised or
  /// read from a model. A checkpoint's state has masters of its own.
  virtual void init_masters(Run& run, Tensor values) = 0;
  /// One update. values: the flat vector; grads: as many, in its compute dtype; or of both the
  /// shares that the ranges' value_begin and grad_begin are places in. Needs
  /// scratch_bytes() of run.scratch; stochastic rounding draws from (run.seed, step, element).
  virtual void update(Run& run, const StepArgs& args, Tensor values, Tensor grads) = 0;
  /// The state that a checkpoint holds, valid after bind(): what OptimizerKind::state_vectors
  /// names, and "master" (bf16 values with masters).
  virtual std::vector<StateTensor> state() const = 0;
  /// Scratch of one update.
  virtual std::size_t scratch_bytes() const { return 0; }
};

/// An optimizer for a flat vector of this spec (f32, f64 or bf16), the whole one even where the
/// ranges are a rank's share of it. `ranges` are in order and do not overlap. Throws Error(kUser)
/// on options that cannot be honoured.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, Spec flat,
                                          std::span<const ParamRange> ranges);

}  // namespace atl::optim
