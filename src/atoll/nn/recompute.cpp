#include "atoll/nn/recompute.h"

#include <algorithm>

namespace atl::nn {

const Recompute::Cached& Recompute::inner_plan(Spec x) const {
  for (const auto& known : plans_) {
    if (known->x == x) return *known;
  }
  if (plans_.size() == 16) plans_.erase(plans_.begin());
  auto plan = std::make_unique<Cached>(Cached{x, inner_->plan(x), 0});
  for (const Spec& spec : plan->inner.kept) plan->kept_bytes += align_up(spec.bytes());
  plans_.push_back(std::move(plan));
  return *plans_.back();
}

Footprint Recompute::plan(Spec x) const {
  const Cached& plan = inner_plan(x);
  const Footprint& inner = plan.inner;
  ATOLL_CHECK(inner.need_y == 0, "recompute of a layer that reads its own output");
  ATOLL_CHECK(!inner.gradients_in_forward, "recompute would add to the gradients twice");
  Footprint footprint;
  footprint.y = inner.y;
  footprint.need_x = kForInput | (inner.need_x & kForWeight);
  footprint.need_dy = inner.need_dy;
  footprint.owed = inner.kept;
  footprint.owed.insert(footprint.owed.end(), inner.owed.begin(), inner.owed.end());
  // Forward: the kept tensors are scratch. B: the output that is made again is scratch.
  footprint.scratch_bytes =
      inner.scratch_bytes + std::max(plan.kept_bytes, align_up(inner.y.bytes()));
  return footprint;
}

Pass Recompute::inner_pass(const Cached& plan, const Pass& pass) const {
  Pass call = pass;
  call.kept = pass.owed.first(plan.inner.kept.size());
  call.owed = pass.owed.subspan(plan.inner.kept.size());
  return call;
}

void Recompute::forward(Run& run, const Pass& pass) {
  const Cached& plan = inner_plan(pass.x.spec());
  Run inner = run;
  forward_kept_.clear();
  for (const Spec& spec : plan.inner.kept) forward_kept_.push_back(inner.take_scratch(spec));
  Pass call = pass;
  call.kept = forward_kept_;
  inner_->forward(inner, call);
}

void Recompute::backward_input(Run& run, const Pass& pass) {
  const Cached& plan = inner_plan(pass.x.spec());
  Pass call = inner_pass(plan, pass);
  {
    Run inner = run;
    call.y = inner.take_scratch(plan.inner.y);
    inner_->forward(inner, call);
  }
  inner_->backward_input(run, call);
}

void Recompute::backward_weight(Run& run, const Pass& pass) {
  inner_->backward_weight(run, inner_pass(inner_plan(pass.x.spec()), pass));
}

}  // namespace atl::nn
