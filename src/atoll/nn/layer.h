#pragma once

// Explicit layers, no tape: each states what memory it needs before any data exists, and its
// backward in two parts, so that pipelines, recompute and sharding need no hooks.

#include <cstddef>
#include <span>
#include <vector>

#include "atoll/nn/param.h"
#include "atoll/ops/run.h"
#include "atoll/tensor/batch.h"

namespace atl::nn {

struct KvCache;

/// Who needs an edge (a layer's x, y or dy) after the pass that made it; a bit mask.
enum Need : unsigned { kForInput = 1, kForWeight = 2 };

/// The memory a layer declares: a pure function of specs that touches no data.
struct Footprint {
  Spec y;
  unsigned need_x = 0;     ///< which backward passes read x
  unsigned need_y = 0;     ///< which backward passes read y
  unsigned need_dy = 0;    ///< which backward passes read dy (kForInput always may)
  std::vector<Spec> kept;  ///< private, lives from forward to the weight pass
  std::vector<Spec> owed;  ///< private, lives from the input pass to the weight pass
  /// In training, forward makes the gradients too: it adds to those of the parameters at once and
  /// keeps dx for B. W has nothing left to do.
  bool gradients_in_forward = false;
  /// Forward costs so little that, where only B and W need y after it, y is made again for them.
  bool y_again = false;
  /// Forward adds Pass::residual to y; B adds Pass::dresidual to dx.
  bool adds_residual = false, adds_dresidual = false;
  std::size_t scratch_bytes = 0;  ///< of Run::scratch, the most that any of the three passes takes
};

/// The tensors of one call, all placed beforehand. Those that a pass has no use for may be
/// undefined; x then still carries its spec.
struct Pass {
  Tensor x, y;
  Tensor dx, dy;
  /// What a Residual around the layer has it add, of the specs of y and dx and apart from them;
  /// undefined: nothing. For layers whose Footprint says that they do.
  Tensor residual, dresidual;
  std::span<const Tensor> kept;  ///< Footprint::kept, in order
  std::span<const Tensor> owed;  ///< Footprint::owed, in order
  const Batch* batch = nullptr;
  KvCache* cache = nullptr;  ///< generation only: where earlier keys and values are
};

/// A differentiable function with parameters. Holds no activations: every call gets its memory in
/// a Pass, so several micro-batches may be in flight.
class Layer {
 public:
  virtual ~Layer() = default;

  /// What a call on an x of this spec needs. Throws Error(kInternal) for a spec it cannot take.
  virtual Footprint plan(Spec x) const = 0;
  /// y = f(x); fills kept.
  virtual void forward(Run& run, const Pass& pass) = 0;
  /// B: fills dx from dy, and owed. dx is undefined for a layer that reads tokens.
  virtual void backward_input(Run& run, const Pass& pass) = 0;
  /// W: adds to the gradients of the layer's parameters. Runs after B, any time later.
  virtual void backward_weight(Run& /*run*/, const Pass& /*pass*/) {}
  /// Shows the visitor every Param and Constant the layer uses.
  virtual void visit(ParamVisitor& /*visitor*/) {}
};

}  // namespace atl::nn
