#pragma once

#include <string>
#include <utility>
#include <vector>

#include "atoll/ops/adamw.h"
#include "atoll/optim/optimizer.h"

namespace atl::optim {

/// The constants of AdamW; the learning rate comes with each step.
struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
};

/// AdamW (Loshchilov & Hutter 2019) on one flat shard of f32 or f64 parameters: two moments, each
/// as large as the shard. make_optimizer makes one for bf16 too.
class AdamW {
 public:
  explicit AdamW(AdamWOptions options) : options_(options) {}

  /// Asks for the moments of a flat shard of this spec.
  void request(MemoryPlan& plan, Spec flat) {
    flat_ = flat;
    m_request_ = plan.request_forever("exp_avg", "optimizer", flat.bytes());
    v_request_ = plan.request_forever("exp_avg_sq", "optimizer", flat.bytes());
  }
  void bind(const Arena& arena) {
    m_ = arena.tensor(m_request_, flat_);
    v_ = arena.tensor(v_request_, flat_);
  }

  /// The `step`-th update (from 1). `grad_scale` multiplies every gradient first.
  void update(Run& run, double lr, double grad_scale, std::int64_t step, Tensor params,
              Tensor grads, std::span<const ParamRange> ranges) {
    ops::AdamWStep call = {.lr = lr,
                           .beta1 = options_.beta1,
                           .beta2 = options_.beta2,
                           .eps = options_.eps,
                           .step = step,
                           .grad_scale = grad_scale};
    for (const ParamRange& range : ranges) {
      call.weight_decay = range.decay ? options_.weight_decay : 0.0;
      const std::int64_t end = range.begin + range.count;
      ops::adamw(run, call, params.rows(range.begin, end), grads.rows(range.begin, end),
                 m_.rows(range.begin, end), v_.rows(range.begin, end));
    }
  }

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
