#include "atoll/nn/parallel_residual.h"

#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/ops/elementwise/elementwise.h"

namespace atl::nn {

namespace {

constexpr std::size_t kMaxPlans = 16;  // as in Sequential

std::vector<Spec> joined(const std::vector<Spec>& a, const std::vector<Spec>& b) {
  std::vector<Spec> all = a;
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

// call.y = stream + branch(call.x); an undefined stream is none.
void forward_branch(Layer& branch, const Footprint& footprint, Run& run, Pass call,
                    const Tensor& stream) {
  if (footprint.adds_residual) call.residual = stream;
  branch.forward(run, call);
  if (stream.defined() && !footprint.adds_residual) ops::add(run, stream, call.y, call.y);
}

// call.dx = dstream + the gradient that comes through the branch.
void backward_branch(Layer& branch, const Footprint& footprint, Run& run, Pass call,
                     const Tensor& dstream) {
  if (footprint.adds_dresidual) call.dresidual = dstream;
  branch.backward_input(run, call);
  if (dstream.defined() && !footprint.adds_dresidual) ops::add(run, dstream, call.dx, call.dx);
}

}  // namespace

const ParallelResidual::Plans& ParallelResidual::plans(const Spec& x) const {
  for (const auto& known : plans_) {
    if (known->x == x) return *known;
  }
  if (plans_.size() == kMaxPlans) plans_.erase(plans_.begin());
  plans_.push_back(std::make_unique<Plans>(Plans{x, first_->plan(x), second_->plan(x)}));
  for (const Footprint* branch : {&plans_.back()->first, &plans_.back()->second}) {
    ATOLL_CHECK(branch->y == x && branch->need_y == 0 && !branch->gradients_in_forward,
                "a residual of {} onto {}", branch->y.to_string(), x.to_string());
  }
  return *plans_.back();
}

Footprint ParallelResidual::plan(Spec x) const {
  const auto& [spec, first, second] = plans(x);
  Footprint footprint;
  footprint.y = x;
  footprint.need_x = first.need_x | second.need_x;
  footprint.need_dy = first.need_dy | second.need_dy;
  footprint.kept = joined(first.kept, second.kept);
  footprint.owed = joined(first.owed, second.owed);
  // The sum after the first branch, and in B its gradient.
  footprint.scratch_bytes =
      align_up(x.bytes()) + std::max(first.scratch_bytes, second.scratch_bytes);
  return footprint;
}

Pass ParallelResidual::pass_of_first(const Plans& plans, const Pass& pass) {
  Pass call = pass;
  call.kept = pass.kept.first(plans.first.kept.size());
  if (!pass.owed.empty()) call.owed = pass.owed.first(plans.first.owed.size());
  return call;
}

Pass ParallelResidual::pass_of_second(const Plans& plans, const Pass& pass) {
  Pass call = pass;
  call.kept = pass.kept.subspan(plans.first.kept.size());
  if (!pass.owed.empty()) call.owed = pass.owed.subspan(plans.first.owed.size());
  return call;
}

void ParallelResidual::forward(Run& run, const Pass& pass) {
  const Plans& plan = plans(pass.x.spec());
  Run inner = run;
  const Tensor sum = inner.take_scratch(pass.x.spec());
  Pass call = pass_of_first(plan, pass);
  call.y = sum;
  forward_branch(*first_, plan.first, inner, call, adds_x_ ? pass.x : Tensor());
  forward_branch(*second_, plan.second, inner, pass_of_second(plan, pass), sum);
}

void ParallelResidual::backward_input(Run& run, const Pass& pass) {
  const Plans& plan = plans(pass.x.spec());
  Run inner = run;
  const Tensor dsum = inner.take_scratch(pass.x.spec());
  Pass call = pass_of_first(plan, pass);
  call.dx = dsum;
  backward_branch(*first_, plan.first, inner, call, adds_x_ ? pass.dy : Tensor());
  backward_branch(*second_, plan.second, inner, pass_of_second(plan, pass), dsum);
}

void ParallelResidual::backward_weight(Run& run, const Pass& pass) {
  const Plans& plan = plans(pass.x.spec());
  first_->backward_weight(run, pass_of_first(plan, pass));
  second_->backward_weight(run, pass_of_second(plan, pass));
}

void ParallelResidual::visit(ParamVisitor& visitor) {
  first_->visit(visitor);
  second_->visit(visitor);
}

}  // namespace atl::nn
