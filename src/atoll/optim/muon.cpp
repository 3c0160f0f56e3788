#include "atoll/ops/muon.h"

#include <algorithm>
#include <cmath>

#include "atoll/base/error.h"
#include "atoll/optim/flat_optimizer.h"
#include "atoll/optim/registry.h"

namespace atl::optim {

namespace {

std::vector<ParamRange> filtered(std::span<const ParamRange> ranges, bool matrices) {
  std::vector<ParamRange> result;
  for (const ParamRange& range : ranges) {
    if (range.matrix == matrices) result.push_back(range);
  }
  return result;
}

// Jordan et al. 2024: the matrices that Muon is for. The other ranges have an AdamW of their own.
class Muon final : public FlatOptimizer {
 public:
  Muon(const OptimizerOptions& options, Spec flat, std::span<const ParamRange> ranges)
      : FlatOptimizer(options, flat, filtered(ranges, true)),
        momentum_({.momentum = options.number("momentum"), .nesterov = options.flag("nesterov")}),
        weight_decay_(options.number("weight_decay")),
        is_original_scale_(options.word("muon_scale") == "original"),
        m_(add_state("momentum_buffer")),
        rest_(find_optimizer("adamw").make(options, flat, filtered(ranges, false))) {
    const double adamw_lr = options.number("muon_adamw_lr");
    if (adamw_lr > 0) rest_lr_ratio_ = adamw_lr / options.peak_lr;
  }

  void request(MemoryPlan& plan) override {
    FlatOptimizer::request(plan);
    rest_->request(plan);
  }
  void bind(const Arena& arena) override {
    FlatOptimizer::bind(arena);
    rest_->bind(arena);
  }
  void init_masters(Run& run, Tensor values) override {
    FlatOptimizer::init_masters(run, values);
    rest_->init_masters(run, values);
  }
  std::vector<StateTensor> state() const override {
    std::vector<StateTensor> all = FlatOptimizer::state();
    for (StateTensor& piece : rest_->state()) all.push_back(std::move(piece));
    return all;
  }

  std::size_t scratch_bytes() const override {
    std::size_t most = 0;
    for (const ParamRange& range : ranges()) {
      const Spec spec = matrix_spec(range);
      most = std::max(most, 2 * align_up(spec.bytes()) + ops::orthogonalize_scratch_bytes(spec));
    }
    return most;
  }

  void update(Run& run, const StepArgs& args, Tensor values, Tensor grads) override {
    check(args, values, grads);
    for (const ParamRange& range : ranges()) update_matrix(run, args, values, grads, range);
    StepArgs rest_args = args;
    rest_args.lr *= rest_lr_ratio_;
    rest_->update(run, rest_args, values, grads);
  }

 private:
  Spec matrix_spec(const ParamRange& range) const {
    return {compute_dtype(flat().dtype), {range.rows, range.cols}};
  }

  // How far to step along an orthogonal matrix of (rows, cols). match_rms: AdamW's usual size (Liu
  // et al. 2025, section 2.2); original: Jordan et al. 2024.
  double scale(const ParamRange& range) const {
    const auto rows = static_cast<double>(range.rows);
    const auto cols = static_cast<double>(range.cols);
    if (is_original_scale_) return std::sqrt(std::max(1.0, rows / cols));
    return 0.2 * std::sqrt(std::max(rows, cols));
  }

  void update_matrix(const Run& run, const StepArgs& args, const Tensor& values,
                     const Tensor& grads, ParamRange range) {
    const std::int64_t size = range.rows * range.cols;
    range.count = size;  // the padding after the matrix is none of ours
    Run inner = run;
    const Tensor direction = inner.take_scratch(matrix_spec(range));
    const Tensor orthogonal = inner.take_scratch(matrix_spec(range));
    ops::MuonMomentum call = momentum_;
    call.grad_scale = args.grad_scale;
    ops::muon_momentum(inner, call, grads_of(grads, range), state_of(m_, range),
                       direction.reshaped({size}));
    ops::orthogonalize(inner, direction, orthogonal);
    const double decay = range.decay ? args.lr * weight_decay_ : 0.0;
    ops::apply_direction(inner, args.lr * scale(range), decay, target_of(run, args, values, range),
                         orthogonal.reshaped({size}));
  }

  ops::MuonMomentum momentum_;
  double weight_decay_;
  bool is_original_scale_;
  std::size_t m_;
  std::unique_ptr<Optimizer> rest_;
  double rest_lr_ratio_ = 1;  // AdamW's learning rate over the step's, which is the matrices'
};

Option scale_option() {
  return {.name = "muon_scale",
          .default_value = "match_rms",
          .doc =
              "match_rms scales updates to AdamW's size, so that its learning rates fit; original "
              "is sqrt(max(1, rows / columns)).",
          .choices = one_of({"match_rms", "original"})};
}

Option adamw_lr_option() {
  return {.name = "muon_adamw_lr",
          .default_value = 0.0,
          .doc = "highest learning rate of what adamw updates; 0: optim.lr.",
          .range = at_least(0)};
}

void check(const OptimizerOptions& options, const NameOption& named) {
  const double ratio = options.number("muon_adamw_lr") / options.peak_lr;
  if (options.number("muon_adamw_lr") == 0 || (std::isfinite(ratio) && ratio > 0)) return;
  throw user_error("{} is relative to optim.lr, which is {}; make optim.lr larger",
                   named("muon_adamw_lr"), options.peak_lr);
}

std::unique_ptr<Optimizer> make(const OptimizerOptions& options, Spec flat,
                                std::span<const ParamRange> ranges) {
  return std::make_unique<Muon>(options, flat, ranges);
}

}  // namespace

OptimizerKind muon_optimizer() {
  return {.name = "muon",
          .doc = "muon for matrices with adamw for the rest",
          .options = {beta1_option(), beta2_option(), eps_option(), weight_decay_option(),
                      momentum_option(), nesterov_option(), scale_option(), adamw_lr_option()},
          .state_vectors = {"momentum_buffer", "exp_avg", "exp_avg_sq"},
          .whole_matrices = true,
          .check = check,
          .make = make};
}

}  // namespace atl::optim
