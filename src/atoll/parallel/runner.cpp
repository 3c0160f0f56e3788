#include "atoll/parallel/runner.h"

#include <algorithm>

#include "atoll/parallel/schedules.h"
#include "atoll/tensor/host_access.h"

namespace atl::parallel {

namespace {

std::size_t num_stages(const nn::Model& model, Use use) {
  return model.stages.size() - (use == Use::kGenerate ? 1 : 0);
}

}  // namespace

Runner::Runner(nn::Model& model, ParamStore& store, Use use, std::int64_t batch,
               std::int64_t length)
    : Runner(model, store, use, batch, length,
             use == Use::kTrain ? schedule_sequential(num_stages(model, use))
                                : schedule_forward(num_stages(model, use))) {}

Runner::Runner(nn::Model& model, ParamStore& store, std::int64_t batch, std::int64_t length,
               std::vector<Action> actions)
    : Runner(model, store, Use::kTrain, batch, length, std::move(actions)) {}

Runner::Runner(nn::Model& model, ParamStore& store, Use use, std::int64_t batch,
               std::int64_t length, std::vector<Action> actions)
    : model_(model), store_(store), use_(use), tokens_{Dtype::kI32, {batch, length}} {
  for (const Action& action : actions) {
    ATOLL_CHECK(is_compute(action.kind), "a runner of one rank has no peer to {}",
                action_name(action.kind));
  }
  std::vector<bool> gradients_in_forward;
  Spec x = tokens_;
  for (std::size_t i = 0; i < num_stages(model, use); ++i) {
    stages_.emplace_back();
    stages_.back().footprint = model.stages[i]->plan(x);
    x = stages_.back().footprint.y;
    gradients_in_forward.push_back(stages_.back().footprint.gradients_in_forward);
  }
  schedule_ = Schedule(std::move(actions), gradients_in_forward);
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    stages_[i].slots.resize(schedule_.num_slots(i));
    ATOLL_CHECK(!stages_[i].slots.empty(), "the schedule leaves out stage {}", i);
  }
}

// The last tick at which stage `stage` reads something it declared this need for.
std::int64_t Runner::last_use(unsigned need, std::size_t stage, std::size_t slot) const {
  ActionKind kind = ActionKind::kForward;
  if (use_ == Use::kTrain && need != 0) {
    kind = (need & nn::kForWeight) != 0 ? ActionKind::kBackwardWeight : ActionKind::kBackwardInput;
  }
  return schedule_.last_tick(kind, stage, slot);
}

void Runner::request_edges(MemoryPlan& plan, std::size_t stage, std::size_t slot) {
  const std::string name = model_.stage_names[stage];
  const nn::Footprint& footprint = stages_[stage].footprint;
  Slot& at = stages_[stage].slots[slot];
  if (stage + 1 == stages_.size()) return;
  const std::int64_t last =
      std::max(last_use(footprint.need_y, stage, slot),
               last_use(stages_[stage + 1].footprint.need_x, stage + 1, slot));
  at.y_request =
      plan.request(name + " output", "activations", footprint.y.bytes(),
                   schedule_.first_tick(ActionKind::kForward, stage, slot),
                   std::max(last, schedule_.last_tick(ActionKind::kForward, stage + 1, slot)));
  if (use_ != Use::kTrain) return;
  const std::int64_t last_gradient_use =
      std::max(schedule_.last_tick(ActionKind::kBackwardInput, stage, slot),
               last_use(footprint.need_dy, stage, slot));
  at.dy_request = plan.request(name + " output gradient", "activations", footprint.y.bytes(),
                               schedule_.first_tick(ActionKind::kBackwardInput, stage + 1, slot),
                               last_gradient_use);
}

// Slots share it: only one action runs at a time.
int Runner::request_scratch(MemoryPlan& plan, std::size_t stage, ActionKind first_kind,
                            ActionKind last_kind) const {
  const StagePlan& at = stages_[stage];
  std::int64_t first = schedule_.first_tick(first_kind, stage, 0);
  std::int64_t last = schedule_.last_tick(last_kind, stage, 0);
  for (std::size_t slot = 1; slot < at.slots.size(); ++slot) {
    first = std::min(first, schedule_.first_tick(first_kind, stage, slot));
    last = std::max(last, schedule_.last_tick(last_kind, stage, slot));
  }
  return plan.request(model_.stage_names[stage] + " scratch", "scratch", at.footprint.scratch_bytes,
                      first, last);
}

void Runner::request_stage(MemoryPlan& plan, std::size_t stage) {
  using enum ActionKind;
  StagePlan& at = stages_[stage];
  const std::string& name = model_.stage_names[stage];
  const auto request = [&](const char* what, const Spec& spec, std::size_t slot,
                           ActionKind first_kind, ActionKind last_kind) {
    return plan.request(name + what, "activations", spec.bytes(),
                        schedule_.first_tick(first_kind, stage, slot),
                        schedule_.last_tick(last_kind, stage, slot));
  };
  const ActionKind end = use_ == Use::kTrain ? kBackwardWeight : kForward;
  for (std::size_t slot = 0; slot < at.slots.size(); ++slot) {
    request_edges(plan, stage, slot);
    for (const Spec& spec : at.footprint.kept) {
      at.slots[slot].kept_requests.push_back(request(" kept", spec, slot, kForward, end));
    }
  }
  at.forward_scratch = request_scratch(plan, stage, kForward, kForward);
  if (use_ != Use::kTrain) return;
  for (std::size_t slot = 0; slot < at.slots.size(); ++slot) {
    for (const Spec& spec : at.footprint.owed) {
      at.slots[slot].owed_requests.push_back(
          request(" owed", spec, slot, kBackwardInput, kBackwardWeight));
    }
  }
  at.backward_scratch = request_scratch(plan, stage, kBackwardInput, kBackwardWeight);
}

void Runner::request(MemoryPlan& plan) {
  for (std::size_t i = 0; i + 1 < stages_.size(); ++i) request_stage(plan, i);
  // Whoever calls reads the last stage's outputs when the last action is done.
  const std::string name = model_.stage_names[stages_.size() - 1] + " output";
  for (std::int64_t i = 0; i < schedule_.num_micro_batches(); ++i) {
    output_requests_.push_back(
        plan.request_forever(name, "activations", stages_.back().footprint.y.bytes()));
  }
  request_stage(plan, stages_.size() - 1);
}

void Runner::bind_slot(const Arena& arena, const nn::Footprint& footprint, Slot& slot) const {
  if (slot.y_request >= 0) slot.y = arena.tensor(slot.y_request, footprint.y);
  if (slot.dy_request >= 0) slot.dy = arena.tensor(slot.dy_request, footprint.y);
  slot.kept.clear();
  slot.owed.clear();
  for (std::size_t k = 0; k < slot.kept_requests.size(); ++k) {
    slot.kept.push_back(arena.tensor(slot.kept_requests[k], footprint.kept[k]));
  }
  for (std::size_t k = 0; k < slot.owed_requests.size(); ++k) {
    slot.owed.push_back(arena.tensor(slot.owed_requests[k], footprint.owed[k]));
  }
}

void Runner::bind(const Arena& arena) {
  arena_ = &arena;
  for (StagePlan& stage : stages_) {
    for (Slot& slot : stage.slots) bind_slot(arena, stage.footprint, slot);
  }
  outputs_.clear();
  for (const int request : output_requests_) {
    outputs_.push_back(arena.tensor(request, stages_.back().footprint.y));
  }
}

nn::Pass Runner::layer_pass(const Action& action, const Batch& batch) const {
  const Slot& at = stages_[action.stage].slots[action.slot];
  nn::Pass pass = {.kept = at.kept, .owed = at.owed, .batch = &batch};
  pass.x = batch.tokens;
  pass.y = at.y;
  pass.dy = at.dy;
  if (action.stage + 1 == stages_.size()) {
    pass.y = outputs_[static_cast<std::size_t>(action.micro_batch)];
  }
  if (action.stage > 0) {
    const Slot& before = stages_[action.stage - 1].slots[action.slot];
    pass.x = before.y;
    pass.dx = before.dy;
  }
  return pass;
}

void Runner::act(Run& run, const Action& action, const Batch& batch, nn::KvCache* cache) {
  const StagePlan& at = stages_[action.stage];
  const bool forward = action.kind == ActionKind::kForward;
  run.scratch = {arena_->data(forward ? at.forward_scratch : at.backward_scratch),
                 at.footprint.scratch_bytes};
  run.first_sample = batch.first_sample;
  nn::Pass pass = layer_pass(action, batch);
  nn::Layer& layer = *model_.stages[action.stage];
  if (forward) {
    pass.cache = cache;
    layer.forward(run, pass);
  } else if (action.kind == ActionKind::kBackwardInput) {
    layer.backward_input(run, pass);
  } else {
    layer.backward_weight(run, pass);
  }
}

// Each pass of a stage, with what it needs of the store.
template <typename Compute>
void Runner::visit_passes(Run& run, bool all, bool idle, Compute&& compute) {
  using Moment = PassEvent::Moment;
  for (const StagePass& pass : schedule_.passes()) {
    if (!all && (pass.kind != PassKind::kForward || pass.micro_batch > 0)) continue;
    const auto tell = [&](Moment moment) {
      if (listener_) listener_({pass, idle, moment});
    };
    tell(Moment::kAcquire);
    store_.acquire(run, pass, idle);
    tell(Moment::kCompute);
    compute(pass);
    tell(Moment::kRelease);
    store_.release(run, pass, idle);
    tell(Moment::kEnd);
  }
}

void Runner::run_passes(Run& run, std::span<const Batch> micro_batches, nn::KvCache* cache) {
  for (const Batch& batch : micro_batches) {
    ATOLL_CHECK(batch.tokens.spec() == tokens_, "planned for {}, given {}", tokens_.to_string(),
                batch.tokens.spec().to_string());
  }
  visit_passes(run, run.training, /*idle=*/false, [&](const StagePass& pass) {
    for (std::int64_t tick = pass.first_tick; tick <= pass.last_tick; ++tick) {
      act(run, schedule_.actions()[static_cast<std::size_t>(tick)],
          micro_batches[static_cast<std::size_t>(pass.micro_batch)], cache);
    }
  });
}

double sum_of_losses(const Tensor& losses) {
  const HostRead read(losses);
  double sum = 0;
  if (losses.dtype() == Dtype::kF64) {
    for (const double loss : read.elements<double>()) sum += loss;
  } else {
    for (const float loss : read.elements<float>()) sum += static_cast<double>(loss);
  }
  return sum;
}

void Runner::forward_backward(Run run, std::span<const Batch> micro_batches) {
  ATOLL_CHECK(use_ == Use::kTrain, "this runner was not planned for training");
  ATOLL_CHECK_EQ(micro_batches.size(), outputs_.size());
  run.training = true;
  run_passes(run, micro_batches, nullptr);
}

double Runner::train(Run run, std::span<const Batch> micro_batches) {
  forward_backward(run, micro_batches);
  double sum = 0;
  for (std::size_t i = 0; i < micro_batches.size(); ++i) sum += sum_of_losses(losses(i));
  return sum;
}

void Runner::idle(Run run, bool training) {
  run.training = training;
  visit_passes(run, training, /*idle=*/true, [](const StagePass&) {});
}

double Runner::evaluate(Run run, const Batch& batch) {
  ATOLL_CHECK(use_ != Use::kGenerate, "this runner was planned for generation");
  run.training = false;
  run_passes(run, {&batch, 1}, nullptr);
  return sum_of_losses(losses());
}

Tensor Runner::generate(Run run, const Batch& batch, nn::KvCache& cache) {
  ATOLL_CHECK(use_ == Use::kGenerate, "this runner was planned for generation");
  run.training = false;
  run_passes(run, {&batch, 1}, &cache);
  return outputs_.front();
}

}  // namespace atl::parallel
