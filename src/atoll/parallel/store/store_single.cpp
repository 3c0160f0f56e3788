#include "atoll/parallel/store/store_single.h"

#include "atoll/ops/elementwise/elementwise.h"

namespace atl::parallel {

void SingleStore::request(MemoryPlan& plan, const Schedule& /*schedule*/) {
  values_request_ = plan.request_forever("parameters", "parameters", flat().bytes());
  if (training()) {
    grads_request_ =
        plan.request_forever("gradients", "gradients", flat().in_compute_dtype().bytes());
  }
  request_fixed(plan);
}

void SingleStore::bind(const Arena& arena) {
  const Tensor values = arena.tensor(values_request_, flat());
  Tensor grads;
  if (training()) grads = arena.tensor(grads_request_, flat().in_compute_dtype());
  set_vectors(values, grads);
  for (std::size_t i = 0; i < trained().size(); ++i) {
    trained()[i]->value = view(values, 0, i);
    if (training()) trained()[i]->grad = view(grads, 0, i);
  }
  bind_fixed(arena);
}

void SingleStore::reduce(Run& /*run*/) {
  sum_shared(0, trained().size(), grads(), 0);
  finish_late();
}

// Passes add to the gradients in all rounds of a step: the first pass of a step sets them to zero.
void SingleStore::acquire(Run& run, const StagePass& /*pass*/, bool /*idle*/) {
  if (run.training && round().index == 0 && enter_round()) ops::fill_zero(run, grads());
}

}  // namespace atl::parallel
