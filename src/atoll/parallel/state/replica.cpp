#include "atoll/parallel/state/replica.h"

#include "atoll/optim/state_vector.h"

namespace atl::parallel {

Replica::Replica(ParamStore& store, const DataParallelOptions& shared,
                 const optim::OptimizerOptions& optimizer)
    : store_(store),
      of_((shared.rank + 1) % shared.num_ranks),
      has_values_(shared.zero == Zero::kParameters) {
  ATOLL_CHECK(shared.zero != Zero::kNone && shared.replicas == 1, "nothing to replicate");
  ranges_ = store.layout().ranges_of(of_);
  if (!has_values_) {
    for (optim::ParamRange& range : ranges_) range.value_begin = range.begin;
  }
  optimizer_ = optim::make_optimizer(optimizer, store.flat(), ranges_);
}

void Replica::request(MemoryPlan& plan) {
  const Spec spec = {store_.flat().dtype, {store_.layout().share(of_)}};
  if (has_values_) {
    values_request_ =
        plan.request_forever("parameters, the next rank's part", "parameters", spec.bytes());
  }
  grads_request_ = plan.request_forever("gradients, the next rank's part", "gradients",
                                        spec.in_compute_dtype().bytes());
  optimizer_->request(plan);
}

void Replica::bind(const Arena& arena) {
  const Spec spec = {store_.flat().dtype, {store_.layout().share(of_)}};
  if (has_values_) values_ = arena.tensor(values_request_, spec);
  grads_ = arena.tensor(grads_request_, spec.in_compute_dtype());
  optimizer_->bind(arena);
}

Tensor Replica::values() const {
  return has_values_ ? values_ : store_.values();
}

HeldVectors Replica::held() const {
  return held_vectors(*optimizer_, ranges_, values());
}

void Replica::synchronise(comm::Group& group, const optim::Optimizer& own) {
  store_.settle();
  const int before = (group.rank() + group.size() - 1) % group.size();
  std::vector<comm::Piece> sends, receives;
  const auto add = [](const HeldVectors& vectors, int peer, bool values,
                      std::vector<comm::Piece>& pieces) {
    for (const auto& [name, held] : vectors) {
      if (name == "values" && !values) continue;
      for (const HeldPiece& piece : held) pieces.push_back({peer, piece.tensor});
    }
  };
  add(held_vectors(own, store_.ranges(), store_.values()), before, has_values_, sends);
  add(held(), of_, has_values_, receives);
  group.exchange(sends, receives);
}

void Replica::receive_gradients(comm::Group& group) {
  const int before = (group.rank() + group.size() - 1) % group.size();
  std::vector<comm::Piece> sends, receives;
  for (const optim::ParamRange& range : optim::joined(store_.ranges(), /*across_decay=*/true)) {
    sends.push_back(
        {before, store_.grads().rows(range.in_grads(), range.in_grads() + range.count)});
  }
  for (const optim::ParamRange& range : optim::joined(ranges_, /*across_decay=*/true)) {
    receives.push_back({of_, grads_.rows(range.in_grads(), range.in_grads() + range.count)});
  }
  group.exchange(sends, receives);
}

void Replica::update(Run& run, const optim::StepArgs& args) {
  optimizer_->update(run, args, values(), grads_);
}

}  // namespace atl::parallel
