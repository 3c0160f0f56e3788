#pragma once

// Optimizers work on flat vectors of values and gradients, cut into ranges of equal treatment.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "atoll/ops/run.h"
#include "atoll/tensor/arena.h"

namespace atl::optim {

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
  /// Where these elements begin in the values and in the gradients that update() is given, when
  /// these are a rank's share of the flat vector; -1: at `begin`, they are the whole vector.
  std::int64_t value_begin = -1;
  std::int64_t grad_begin = -1;

  std::int64_t in_values() const { return value_begin < 0 ? begin : value_begin; }
  std::int64_t in_grads() const { return grad_begin < 0 ? begin : grad_begin; }
};

/// The update rules.
enum class OptimizerKind {
  kAdamW,  ///< Loshchilov & Hutter 2019
  kMuon,   ///< Jordan et al. 2024; AdamW for what is no hidden matrix
  kLion,   ///< Chen et al. 2023
  kSgd,    ///< momentum and Nesterov as in torch.optim.SGD; weight decay is L2
};

/// "adamw", "muon", "lion" or "sgd"; throws Error(kUser) for anything else.
OptimizerKind optimizer_kind(const std::string& name);

/// How far Muon steps along an orthogonal matrix of (rows, cols).
enum class MuonScale {
  kMatchRms,  ///< 0.2 sqrt(max(rows, cols)): AdamW's usual size (Liu et al. 2025, section 2.2)
  kOriginal,  ///< sqrt(max(1, rows / cols)) (Jordan et al. 2024)
};

/// "match_rms" or "original"; throws Error(kUser) for anything else.
MuonScale muon_scale(const std::string& name);

/// What keeps the bits of an update that bf16 values are too coarse for.
enum class Masters {
  kF32,         ///< an f32 copy of the values is optimizer state, and bf16 values round to nearest
  kStochastic,  ///< nothing: bf16 values are rounded up or down at random, right on average
};

/// "f32" or "stochastic"; throws Error(kUser) for anything else.
Masters masters(const std::string& name);

/// The optimizer's constants; the learning rate comes with each step.
struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double beta1 = 0.9;         ///< adamw, lion, and AdamW inside muon
  double beta2 = 0.95;        ///< the same; Lion's authors use 0.99
  double eps = 1e-8;          ///< adamw, and AdamW inside muon
  double weight_decay = 0.1;  ///< all
  double momentum = 0.95;     ///< muon, sgd
  bool nesterov = true;       ///< muon, sgd
  MuonScale muon_scale = MuonScale::kMatchRms;
  /// muon: AdamW's learning rate inside Muon over the step's, which is the matrices'.
  double adamw_lr_ratio = 1;
  Masters masters = Masters::kF32;  ///< of bf16 values; f32 and f64 values are their own
};

/// What one update is given beside values and gradients.
struct StepArgs {
  double lr = 0;
  double grad_scale = 1;  ///< multiplies every gradient first: clipping
  std::int64_t step = 1;  ///< number of the update, from 1
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
/// matrix), so neither the number of threads nor the order of ranges changes a bit.
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
  /// The state that a checkpoint holds, valid after bind(): "exp_avg" (adamw, lion), "exp_avg_sq"
  /// (adamw), "momentum_buffer" (muon, sgd) and "master" (bf16 values with masters).
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
