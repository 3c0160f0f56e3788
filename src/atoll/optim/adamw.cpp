#include "atoll/optim/adamw.h"

#include "atoll/ops/adamw.h"

namespace atl::optim {

void AdamW::request(MemoryPlan& plan, Spec flat) {
  flat_ = flat;
  m_request_ = plan.request_forever("exp_avg", "optimizer", flat.bytes());
  v_request_ = plan.request_forever("exp_avg_sq", "optimizer", flat.bytes());
}

void AdamW::bind(const Arena& arena) {
  m_ = arena.tensor(m_request_, flat_);
  v_ = arena.tensor(v_request_, flat_);
}

void AdamW::update(Run& run, double lr, double grad_scale, std::int64_t step, Tensor params,
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

}  // namespace atl::optim
