#include "atoll/ops/adamw.h"

#include "atoll/optim/flat_optimizer.h"

namespace atl::optim {

namespace {

class AdamW final : public FlatOptimizer {
 public:
  AdamW(const OptimizerOptions& options, Spec flat, std::span<const ParamRange> ranges)
      : FlatOptimizer(options, flat, joined(ranges, /*across_decay=*/false)),
        m_(add_state("exp_avg")),
        v_(add_state("exp_avg_sq")) {}

  void update(Run& run, const StepArgs& args, Tensor values, Tensor grads) override {
    check(args, values, grads);
    ops::AdamWStep call = {.lr = args.lr,
                           .beta1 = options().beta1,
                           .beta2 = options().beta2,
                           .eps = options().eps,
                           .step = args.step,
                           .grad_scale = args.grad_scale};
    for (const ParamRange& range : ranges()) {
      call.weight_decay = range.decay ? options().weight_decay : 0.0;
      ops::adamw(run, call, target_of(run, args, values, range), grads_of(grads, range),
                 state_of(m_, range), state_of(v_, range));
    }
  }

 private:
  std::size_t m_;
  std::size_t v_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const OptimizerOptions& options, Spec flat,
                                      std::span<const ParamRange> ranges) {
  return std::make_unique<AdamW>(options, flat, ranges);
}

}  // namespace atl::optim
