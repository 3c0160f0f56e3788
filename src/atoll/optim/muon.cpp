#include "atoll/ops/muon.h"

#include <algorithm>
#include <cmath>

#include "atoll/optim/flat_optimizer.h"

namespace atl::optim {

namespace {

std::vector<ParamRange> filtered(std::span<const ParamRange> ranges, bool matrices) {
  std::vector<ParamRange> result;
  for (const ParamRange& range : ranges) {
    if (range.matrix == matrices) result.push_back(range);
  }
  return result;
}

// The matrices that Muon is for; the other ranges have an AdamW of their own.
class Muon final : public FlatOptimizer {
 public:
  Muon(const OptimizerOptions& options, Spec flat, std::span<const ParamRange> ranges)
      : FlatOptimizer(options, flat, filtered(ranges, true)),
        m_(add_state("momentum_buffer")),
        rest_(make_adamw(options, flat, filtered(ranges, false))) {}

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
    rest_args.lr *= options().adamw_lr_ratio;
    rest_->update(run, rest_args, values, grads);
  }

 private:
  Spec matrix_spec(const ParamRange& range) const {
    return {compute_dtype(flat().dtype), {range.rows, range.cols}};
  }

  double scale(const ParamRange& range) const {
    const auto rows = static_cast<double>(range.rows);
    const auto cols = static_cast<double>(range.cols);
    if (options().muon_scale == MuonScale::kOriginal) return std::sqrt(std::max(1.0, rows / cols));
    return 0.2 * std::sqrt(std::max(rows, cols));
  }

  void update_matrix(const Run& run, const StepArgs& args, const Tensor& values,
                     const Tensor& grads, ParamRange range) {
    const std::int64_t size = range.rows * range.cols;
    range.count = size;  // the padding after the matrix is none of ours
    Run inner = run;
    const Tensor direction = inner.take_scratch(matrix_spec(range));
    const Tensor orthogonal = inner.take_scratch(matrix_spec(range));
    ops::muon_momentum(inner,
                       {.momentum = options().momentum,
                        .nesterov = options().nesterov,
                        .grad_scale = args.grad_scale},
                       grads_of(grads, range), state_of(m_, range), direction.reshaped({size}));
    ops::orthogonalize(inner, direction, orthogonal);
    const double decay = range.decay ? args.lr * options().weight_decay : 0.0;
    ops::apply_direction(inner, args.lr * scale(range), decay, target_of(run, args, values, range),
                         orthogonal.reshaped({size}));
  }

  std::size_t m_;
  std::unique_ptr<Optimizer> rest_;
};

}  // namespace

std::unique_ptr<Optimizer> make_muon(const OptimizerOptions& options, Spec flat,
                                     std::span<const ParamRange> ranges) {
  return std::make_unique<Muon>(options, flat, ranges);
}

}  // namespace atl::optim
