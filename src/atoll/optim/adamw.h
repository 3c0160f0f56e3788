#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "atoll/ops/run.h"
#include "atoll/tensor/arena.h"

namespace atl::optim {

/// A run of elements of the flat parameter vector that are treated alike.
struct ParamRange {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  bool decay = false;  ///< Does weight decay apply?
};

/// The optimizer's constants; the learning rate comes with each step.
struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
};

/// AdamW (Loshchilov & Hutter 2019) on one flat shard of parameters: two moments, each as large as
/// the shard.
class AdamW {
 public:
  explicit AdamW(AdamWOptions options) : options_(options) {}

  /// Asks for the moments of a flat shard of this spec.
  void request(MemoryPlan& plan, Spec flat);
  void bind(const Arena& arena);

  /// The `step`-th update (from 1). `grad_scale` multiplies every gradient first.
  void update(Run& run, double lr, double grad_scale, std::int64_t step, Tensor params,
              Tensor grads, std::span<const ParamRange> ranges);

  /// The state a checkpoint holds: (name, flat tensor).
  std::vector<std::pair<std::string, Tensor>> state() const {
    return {{"exp_avg", m_}, {"exp_avg_sq", v_}};
  }

 private:
  AdamWOptions options_;
  Spec flat_;
  int m_request_ = -1;
  int v_request_ = -1;
  Tensor m_;
  Tensor v_;
};

}  // namespace atl::optim
