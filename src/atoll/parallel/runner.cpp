#include "atoll/parallel/runner.h"

#include <algorithm>

namespace atl::parallel {

Runner::Runner(nn::Model& model, ParamStore& store, Use use, std::int64_t batch,
               std::int64_t length)
    : model_(model), store_(store), use_(use), tokens_{Dtype::kI32, {batch, length}} {
  const std::size_t num_stages = model.stages.size() - (use == Use::kGenerate ? 1 : 0);
  Spec x = tokens_;
  for (std::size_t i = 0; i < num_stages; ++i) {
    stages_.emplace_back();
    stages_.back().footprint = model.stages[i]->plan(x);
    x = stages_.back().footprint.y;
  }
  clock_.num_stages = num_stages;
}

// The last tick at which stage `stage` reads something it declared this need for.
std::int64_t Runner::last_use(unsigned need, std::size_t stage) const {
  if (use_ != Use::kTrain || need == 0) return clock_.forward_tick(stage);
  return (need & nn::kForWeight) != 0 ? clock_.weight_tick(stage) : clock_.input_tick(stage);
}

void Runner::request_edges(MemoryPlan& plan, std::size_t stage) {
  const std::string name = model_.stage_names[stage];
  StagePlan& at = stages_[stage];
  const Spec& y = at.footprint.y;
  if (stage + 1 == stages_.size()) {
    at.y_request = plan.request_forever(name + " output", "activations", y.bytes());
    return;
  }
  const std::int64_t last = std::max(last_use(at.footprint.need_y, stage),
                                     last_use(stages_[stage + 1].footprint.need_x, stage + 1));
  at.y_request =
      plan.request(name + " output", "activations", y.bytes(), clock_.forward_tick(stage),
                   std::max(last, clock_.forward_tick(stage + 1)));
  if (use_ != Use::kTrain) return;
  const std::int64_t last_gradient_use =
      std::max(clock_.input_tick(stage), last_use(at.footprint.need_dy, stage));
  at.dy_request = plan.request(name + " output gradient", "activations", y.bytes(),
                               clock_.input_tick(stage + 1), last_gradient_use);
}

void Runner::request(MemoryPlan& plan) {
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    StagePlan& at = stages_[i];
    const std::string& name = model_.stage_names[i];
    const nn::Footprint& footprint = at.footprint;
    const std::int64_t kept_until =
        use_ == Use::kTrain ? clock_.weight_tick(i) : clock_.forward_tick(i);
    request_edges(plan, i);
    for (const Spec& spec : footprint.kept) {
      at.kept_requests.push_back(plan.request(name + " kept", "activations", spec.bytes(),
                                              clock_.forward_tick(i), kept_until));
    }
    at.forward_scratch = plan.request(name + " scratch", "scratch", footprint.scratch_bytes,
                                      clock_.forward_tick(i), clock_.forward_tick(i));
    if (use_ != Use::kTrain) continue;
    for (const Spec& spec : footprint.owed) {
      at.owed_requests.push_back(plan.request(name + " owed", "activations", spec.bytes(),
                                              clock_.input_tick(i), clock_.weight_tick(i)));
    }
    at.backward_scratch = plan.request(name + " scratch", "scratch", footprint.scratch_bytes,
                                       clock_.input_tick(i), clock_.weight_tick(i));
  }
}

void Runner::bind(const Arena& arena) {
  arena_ = &arena;
  edges_.clear();
  edge_gradients_.assign(stages_.size(), {});
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    StagePlan& at = stages_[i];
    edges_.push_back(arena.tensor(at.y_request, at.footprint.y));
    if (at.dy_request >= 0) edge_gradients_[i] = arena.tensor(at.dy_request, at.footprint.y);
    at.kept.clear();
    at.owed.clear();
    for (std::size_t k = 0; k < at.kept_requests.size(); ++k) {
      at.kept.push_back(arena.tensor(at.kept_requests[k], at.footprint.kept[k]));
    }
    for (std::size_t k = 0; k < at.owed_requests.size(); ++k) {
      at.owed.push_back(arena.tensor(at.owed_requests[k], at.footprint.owed[k]));
    }
  }
}

nn::Pass Runner::pass(std::size_t stage, const Batch& batch) const {
  const StagePlan& at = stages_[stage];
  nn::Pass pass = {.kept = at.kept, .owed = at.owed, .batch = &batch};
  pass.x = stage == 0 ? batch.tokens : edges_[stage - 1];
  pass.y = edges_[stage];
  pass.dy = edge_gradients_[stage];
  if (stage > 0) pass.dx = edge_gradients_[stage - 1];
  return pass;
}

// A pass of a stage, with what it needs of the store.
template <typename Compute>
void Runner::visit(Run& run, std::size_t stage, PassKind kind, bool idle, Compute&& compute) {
  using Moment = PassEvent::Moment;
  const auto tell = [&](Moment moment) {
    if (listener_) listener_({stage, kind, idle, moment});
  };
  tell(Moment::kAcquire);
  store_.acquire(run, stage, kind, idle);
  tell(Moment::kCompute);
  compute();
  tell(Moment::kRelease);
  store_.release(run, stage, kind, idle);
  tell(Moment::kEnd);
}

void Runner::forward(Run& run, const Batch& batch, nn::KvCache* cache) {
  ATOLL_CHECK(batch.tokens.spec() == tokens_, "planned for {}, given {}", tokens_.to_string(),
              batch.tokens.spec().to_string());
  run.first_sample = batch.first_sample;
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    run.scratch = {arena_->data(stages_[i].forward_scratch), stages_[i].footprint.scratch_bytes};
    nn::Pass call = pass(i, batch);
    call.cache = cache;
    visit(run, i, PassKind::kForward, /*idle=*/false,
          [&] { model_.stages[i]->forward(run, call); });
  }
}

double Runner::sum_of_losses() const {
  double sum = 0;
  const std::int64_t count = losses().num_elements();
  for (std::int64_t i = 0; i < count; ++i) {
    sum += losses().dtype() == Dtype::kF64 ? losses().data<double>()[i]
                                           : static_cast<double>(losses().data<float>()[i]);
  }
  return sum;
}

double Runner::train(Run run, const Batch& batch) {
  ATOLL_CHECK(use_ == Use::kTrain, "this runner was not planned for training");
  run.training = true;
  forward(run, batch, nullptr);
  for (std::size_t i = stages_.size(); i-- > 0;) {
    run.scratch = {arena_->data(stages_[i].backward_scratch), stages_[i].footprint.scratch_bytes};
    visit(run, i, PassKind::kBackward, /*idle=*/false, [&] {
      model_.stages[i]->backward_input(run, pass(i, batch));
      model_.stages[i]->backward_weight(run, pass(i, batch));
    });
  }
  return sum_of_losses();
}

void Runner::idle(Run run, bool training) {
  run.training = training;
  const auto pass = [&](std::size_t stage, PassKind kind) {
    visit(run, stage, kind, /*idle=*/true, [] {});
  };
  for (std::size_t i = 0; i < stages_.size(); ++i) pass(i, PassKind::kForward);
  for (std::size_t i = stages_.size(); training && i-- > 0;) pass(i, PassKind::kBackward);
}

double Runner::evaluate(Run run, const Batch& batch) {
  ATOLL_CHECK(use_ != Use::kGenerate, "this runner was planned for generation");
  run.training = false;
  forward(run, batch, nullptr);
  return sum_of_losses();
}

Tensor Runner::generate(Run run, const Batch& batch, nn::KvCache& cache) {
  ATOLL_CHECK(use_ == Use::kGenerate, "this runner was not planned for generation");
  run.training = false;
  forward(run, batch, &cache);
  return edges_.back();
}

}  // namespace atl::parallel
