#include "atoll/ops/sgd.h"

#include "atoll/optim/flat_optimizer.h"

namespace atl::optim {

namespace {

class Sgd final : public FlatOptimizer {
 public:
  Sgd(const OptimizerOptions& options, Spec flat, std::span<const ParamRange> ranges)
      : FlatOptimizer(options, flat, joined(ranges, /*across_decay=*/false)) {
    if (options.momentum > 0) m_ = static_cast<int>(add_state("momentum_buffer"));
  }

  void update(Run& run, const StepArgs& args, Tensor values, Tensor grads) override {
    check(args, values, grads);
    ops::SgdStep call = {.lr = args.lr,
                         .momentum = options().momentum,
                         .nesterov = options().nesterov,
                         .grad_scale = args.grad_scale};
    for (const ParamRange& range : ranges()) {
      call.weight_decay = range.decay ? options().weight_decay : 0.0;
      const Tensor m = m_ < 0 ? Tensor() : state_of(static_cast<std::size_t>(m_), range);
      ops::sgd(run, call, target_of(run, args, values, range), grads_of(grads, range), m);
    }
  }

 private:
  int m_ = -1;  // without momentum there is no state
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(const OptimizerOptions& options, Spec flat,
                                    std::span<const ParamRange> ranges) {
  return std::make_unique<Sgd>(options, flat, ranges);
}

}  // namespace atl::optim
