#include "atoll/ops/update/lion.h"

#include "atoll/optim/flat_optimizer.h"
#include "atoll/optim/registry.h"

namespace atl::optim {

namespace {

// Chen et al. 2023, whose beta2 is 0.99.
class Lion final : public FlatOptimizer {
 public:
  Lion(const OptimizerOptions& options, Spec flat, std::span<const ParamRange> ranges)
      : FlatOptimizer(options, flat, joined(ranges, /*across_decay=*/false)),
        constants_({.beta1 = options.number("beta1"), .beta2 = options.number("beta2")}),
        weight_decay_(options.number("weight_decay")),
        m_(add_state("exp_avg")) {}

  void update(Run& run, const StepArgs& args, Tensor values, Tensor grads) override {
    check(args, values, grads);
    ops::LionStep call = constants_;
    call.grad_scale = args.grad_scale;
    for (const ParamRange& range : ranges()) {
      // What decays does so by args.lr: the op multiplies both by its rate.
      call.lr = args.lr * range.lr_scale;
      call.weight_decay = range.decay ? weight_decay_ / range.lr_scale : 0.0;
      ops::lion(run, call, target_of(run, args, values, range), grads_of(grads, range),
                state_of(m_, range));
    }
  }

 private:
  ops::LionStep constants_;
  double weight_decay_;
  std::size_t m_;
};

std::unique_ptr<Optimizer> make(const OptimizerOptions& options, Spec flat,
                                std::span<const ParamRange> ranges) {
  return std::make_unique<Lion>(options, flat, ranges);
}

}  // namespace

OptimizerKind lion_optimizer() {
  return {.name = "lion",
          .doc = "lion",
          .options = {beta1_option(), beta2_option(), weight_decay_option()},
          .state_vectors = {"exp_avg"},
          .scales_rates = true,
          .make = make};
}

}  // namespace atl::optim
