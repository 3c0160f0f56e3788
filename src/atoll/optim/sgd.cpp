#include "atoll/ops/update/sgd.h"

#include "atoll/base/error.h"
#include "atoll/optim/flat_optimizer.h"
#include "atoll/optim/registry.h"

namespace atl::optim {

namespace {

// Momentum and Nesterov's as in torch.optim.SGD; weight decay is decoupled, as of the other kinds:
// docs/decisions/0081-weight-decay-is-decoupled-for-all-optimizers.md.
class Sgd final : public FlatOptimizer {
 public:
  Sgd(const OptimizerOptions& options, Spec flat, std::span<const ParamRange> ranges)
      : FlatOptimizer(options, flat, joined(ranges, /*across_decay=*/false)),
        constants_({.momentum = options.number("momentum"), .nesterov = options.flag("nesterov")}),
        weight_decay_(options.number("weight_decay")) {
    if (constants_.momentum > 0) m_ = static_cast<int>(add_state("momentum_buffer"));
  }

  void update(Run& run, const StepArgs& args, Tensor values, Tensor grads) override {
    check(args, values, grads);
    ops::SgdStep call = constants_;
    call.lr = args.lr;
    call.grad_scale = args.grad_scale;
    for (const ParamRange& range : ranges()) {
      call.weight_decay = range.decay ? weight_decay_ : 0.0;
      const Tensor m = m_ < 0 ? Tensor() : state_of(static_cast<std::size_t>(m_), range);
      ops::sgd(run, call, target_of(run, args, values, range), grads_of(grads, range), m);
    }
  }

 private:
  ops::SgdStep constants_;
  double weight_decay_;
  int m_ = -1;  // without momentum there is no state
};

void check(const OptimizerOptions& options, const NameOption& named) {
  if (!options.flag("nesterov") || options.number("momentum") > 0) return;
  throw user_error("{} has no Nesterov momentum; set optim.nesterov=false", named("momentum"));
}

std::unique_ptr<Optimizer> make(const OptimizerOptions& options, Spec flat,
                                std::span<const ParamRange> ranges) {
  return std::make_unique<Sgd>(options, flat, ranges);
}

}  // namespace

OptimizerKind sgd_optimizer() {
  return {.name = "sgd",
          .doc = "sgd with momentum",
          .options = {weight_decay_option(), momentum_option(), nesterov_option()},
          .state_vectors = {"momentum_buffer"},
          .check = check,
          .make = make};
}

}  // namespace atl::optim
