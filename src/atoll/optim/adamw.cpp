#include "atoll/ops/update/adamw.h"

#include "atoll/optim/flat_optimizer.h"
#include "atoll/optim/registry.h"

namespace atl::optim {

namespace {

// Loshchilov & Hutter 2019.
class AdamW final : public FlatOptimizer {
 public:
  AdamW(const OptimizerOptions& options, Spec flat, std::span<const ParamRange> ranges)
      : FlatOptimizer(options, flat, joined(ranges, /*across_decay=*/false)),
        constants_({.beta1 = options.number("beta1"),
                    .beta2 = options.number("beta2"),
                    .eps = options.number("eps")}),
        weight_decay_(options.number("weight_decay")),
        m_(add_state("exp_avg")),
        v_(add_state("exp_avg_sq")) {}

  void update(Run& run, const StepArgs& args, Tensor values, Tensor grads) override {
    check(args, values, grads);
    ops::AdamWStep call = constants_;
    call.step = args.step;
    call.grad_scale = args.grad_scale;
    for (const ParamRange& range : ranges()) {
      // What decays does so by args.lr: the op multiplies both by its rate.
      call.lr = args.lr * range.lr_scale;
      call.weight_decay = range.decay ? weight_decay_ / range.lr_scale : 0.0;
      ops::adamw(run, call, target_of(run, args, values, range), grads_of(grads, range),
                 state_of(m_, range), state_of(v_, range));
    }
  }

 private:
  ops::AdamWStep constants_;
  double weight_decay_;
  std::size_t m_;
  std::size_t v_;
};

std::unique_ptr<Optimizer> make(const OptimizerOptions& options, Spec flat,
                                std::span<const ParamRange> ranges) {
  return std::make_unique<AdamW>(options, flat, ranges);
}

}  // namespace

OptimizerKind adamw_optimizer() {
  return {.name = "adamw",
          .doc = "adamw",
          .options = {beta1_option(), beta2_option(), eps_option(), weight_decay_option()},
          .state_vectors = {"exp_avg", "exp_avg_sq"},
          .scales_rates = true,
          .make = make};
}

}  // namespace atl::optim
