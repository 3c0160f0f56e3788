#include "atoll/optim/flat_optimizer.h"

namespace atl::optim {

FlatOptimizer::FlatOptimizer(const OptimizerOptions& options, Spec flat,
                             std::span<const ParamRange> ranges)
    : flat_(flat), ranges_(ranges.begin(), ranges.end()) {
  if (flat.dtype == Dtype::kBf16 && options.masters == Masters::kF32) {
    master_ = static_cast<int>(add_state("master"));
  }
}

std::size_t FlatOptimizer::add_state(std::string name) {
  states_.emplace_back(std::move(name), compute_dtype(flat_.dtype), ranges_);
  return states_.size() - 1;
}

void FlatOptimizer::request(MemoryPlan& plan) {
  for (StateVector& state : states_) state.request(plan);
}

void FlatOptimizer::bind(const Arena& arena) {
  for (StateVector& state : states_) state.bind(arena);
}

void FlatOptimizer::init_masters(Run& run, Tensor values) {
  ATOLL_CHECK(values.dtype() == flat_.dtype, "{} against {}", values.spec().to_string(),
              flat_.to_string());
  if (master_ < 0) return;
  for (const ParamRange& range : joined(ranges_, /*across_decay=*/true)) {
    ops::widen(run, values_of(values, range), state_of(static_cast<std::size_t>(master_), range));
  }
}

std::vector<StateTensor> FlatOptimizer::state() const {
  std::vector<StateTensor> all;
  for (const StateVector& state : states_) state.append_to(all);
  return all;
}

Tensor FlatOptimizer::state_of(std::size_t number, const ParamRange& range) const {
  return states_[number].of(range);
}

Tensor FlatOptimizer::values_of(const Tensor& values, const ParamRange& range) {
  return values.rows(range.in_values(), range.in_values() + range.count);
}

Tensor FlatOptimizer::grads_of(const Tensor& grads, const ParamRange& range) {
  return grads.rows(range.in_grads(), range.in_grads() + range.count);
}

ops::UpdateTarget FlatOptimizer::target_of(const Run& run, const StepArgs& args,
                                           const Tensor& values, const ParamRange& range) const {
  ops::UpdateTarget target(values_of(values, range));
  if (master_ >= 0) target.master = state_of(static_cast<std::size_t>(master_), range);
  target.first_element = range.in_draws();
  target.rounding = ops::rounding_stream(run.seed, args.step);
  return target;
}

void FlatOptimizer::check(const StepArgs& args, const Tensor& values, const Tensor& grads) const {
  ATOLL_CHECK(args.step >= 1, "update number {}", args.step);
  ATOLL_CHECK(values.dtype() == flat_.dtype && grads.dtype() == compute_dtype(flat_.dtype),
              "values {} and gradients {} of {}", values.spec().to_string(),
              grads.spec().to_string(), flat_.to_string());
}

}  // namespace atl::optim
