#include "atoll/ops/lion.h"

#include "atoll/optim/flat_optimizer.h"

namespace atl::optim {

namespace {

class Lion final : public FlatOptimizer {
 public:
  Lion(const OptimizerOptions& options, Spec flat, std::span<const ParamRange> ranges)
      : FlatOptimizer(options, flat, joined(ranges, /*across_decay=*/false)),
        m_(add_state("exp_avg")) {}

  void update(Run& run, const StepArgs& args, Tensor values, Tensor grads) override {
    check(args, values, grads);
    ops::LionStep call = {.lr = args.lr,
                          .beta1 = options().beta1,
                          .beta2 = options().beta2,
                          .grad_scale = args.grad_scale};
    for (const ParamRange& range : ranges()) {
      call.weight_decay = range.decay ? options().weight_decay : 0.0;
      ops::lion(run, call, target_of(run, args, values, range), grads_of(grads, range),
                state_of(m_, range));
    }
  }

 private:
  std::size_t m_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lion(const OptimizerOptions& options, Spec flat,
                                     std::span<const ParamRange> ranges) {
  return std::make_unique<Lion>(options, flat, ranges);
}

}  // namespace atl::optim
