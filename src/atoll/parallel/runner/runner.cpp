#include "atoll/parallel/runner/runner.h"

#include <algorithm>

#include "atoll/parallel/schedule/schedules.h"
#include "atoll/tensor/host_access.h"

namespace atl::parallel {

namespace {

RankSchedule one_at_a_time(const nn::Model& model, Use use) {
  const std::size_t num_stages = model.stages.size() - (use == Use::kGenerate ? 1 : 0);
  return alone(use == Use::kTrain ? schedule_sequential(num_stages) : schedule_forward(num_stages));
}

}  // namespace

Runner::Runner(nn::Model& model, ParamStore& store, Use use, std::int64_t batch,
               std::int64_t length)
    : Runner(model, store, use, batch, length, one_at_a_time(model, use)) {}

Runner::Runner(nn::Model& model, ParamStore& store, Use use, std::int64_t batch,
               std::int64_t length, RankSchedule schedule)
    : model_(model),
      store_(store),
      use_(use),
      tokens_{Dtype::kI32, {batch, length}},
      transfers_(schedule),
      stages_(read_stages(model, use, tokens_, schedule.actions)) {
  std::vector<bool> gradients_in_forward;
  for (const StagePlan& stage : stages_) {
    gradients_in_forward.push_back(stage.footprint.gradients_in_forward);
  }
  schedule_ = Schedule(std::move(schedule.actions), gradients_in_forward);
  plan_memory(model, use, schedule_, schedule.transfers, stages_);
}

void Runner::request_stage(MemoryPlan& plan, std::size_t stage) {
  StagePlan& at = stages_[stage];
  const auto scratch = [&](const std::vector<TickSpan>& ticks) {
    return plan.request(model_.stage_names[stage] + " scratch", "scratch",
                        at.footprint.scratch_bytes, ticks);
  };
  for (ActivationSlots* slots : {&at.x, &at.y, &at.dy, &at.dx, &at.kept}) slots->request(plan);
  scratch_requests_.emplace_back(scratch(at.forward_ticks), -1);
  if (use_ != Use::kTrain) return;
  at.owed.request(plan);
  scratch_requests_.back().second = scratch(at.backward_ticks);
}

void Runner::request(MemoryPlan& plan) {
  for (std::size_t i = 0; i + 1 < stages_.size(); ++i) request_stage(plan, i);
  // The caller reads the outputs of the last stage after the last action: they need permanent
  // memory.
  const std::string name = model_.stage_names[stages_.size() - 1] + " output";
  for (std::int64_t i = 0; has_losses() && i < schedule_.num_micro_batches(); ++i) {
    output_requests_.push_back(
        plan.request_forever(name, "activations", stages_.back().footprint.y.bytes()));
  }
  request_stage(plan, stages_.size() - 1);
}

void Runner::bind(const Arena& arena) {
  arena_ = &arena;
  for (StagePlan& at : stages_) {
    for (ActivationSlots* slots : {&at.x, &at.y, &at.dy, &at.dx, &at.kept, &at.owed}) {
      slots->bind(arena);
    }
  }
  outputs_.clear();
  for (const int request : output_requests_) {
    outputs_.push_back(arena.tensor(request, stages_.back().footprint.y));
  }
}

nn::Pass Runner::layer_pass(const Action& action, const Batch& batch) const {
  const StagePlan& at = stages_[action.stage];
  const std::int64_t i = action.micro_batch;
  nn::Pass pass = {.kept = at.kept.of(i), .owed = at.owed.of(i), .batch = &batch};
  pass.x = batch.tokens;
  pass.y = at.y.one(i);
  pass.dy = at.dy.one(i);
  if (has_losses() && action.stage + 1 == stages_.size()) {
    pass.y = outputs_[static_cast<std::size_t>(i)];
  }
  if (at.receives_input) {
    pass.x = at.x.one(i);
    pass.dx = at.dx.one(i);
  } else if (action.stage > 0) {
    pass.x = stages_[action.stage - 1].y.one(i);
    pass.dx = stages_[action.stage - 1].dy.one(i);
  }
  return pass;
}

Tensor Runner::moved_by(const Action& action) const {
  const StagePlan& at = stages_[action.stage];
  switch (action.kind) {
    case ActionKind::kReceiveInput:
      return at.x.one(action.micro_batch);
    case ActionKind::kSendOutput:
      return at.y.one(action.micro_batch);
    case ActionKind::kReceiveGradient:
      return at.dy.one(action.micro_batch);
    case ActionKind::kSendGradient:
      return at.dx.one(action.micro_batch);
    default:
      return {};
  }
}

void Runner::act(Run& run, const Action& action, const Batch& batch, nn::KvCache* cache) {
  const StagePlan& at = stages_[action.stage];
  const bool forward = action.kind == ActionKind::kForward;
  const auto& [forward_scratch, backward_scratch] = scratch_requests_[action.stage];
  run.scratch = {arena_->data(forward ? forward_scratch : backward_scratch),
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

template <typename Compute>
void Runner::visit_passes(Run& run, bool all, bool idle, Compute&& compute) {
  using Moment = PassEvent::Moment;
  transfers_.begin_walk(all);
  next_tick_ = 0;
  for (const StagePass& pass : schedule_.passes()) {
    if (!all && (pass.kind != PassKind::kForward || pass.micro_batch > 0)) continue;
    const auto tell = [&](Moment moment) {
      if (listener_) listener_({pass, idle, moment});
    };
    if (!idle) transfer_until(pass.first_tick);
    tell(Moment::kAcquire);
    store_.acquire(run, pass, idle);
    tell(Moment::kCompute);
    compute(pass);
    tell(Moment::kRelease);
    store_.release(run, pass, idle);
    tell(Moment::kEnd);
  }
  if (!idle) transfer_until(std::ssize(schedule_.actions()));
}

void Runner::transfer_until(std::int64_t tick) {
  const auto tensor_of = [this](const Action& action) { return moved_by(action); };
  for (; next_tick_ < tick; ++next_tick_) {
    transfers_.advance(next_tick_, tensor_of);
    transfers_.act(next_tick_);
  }
  transfers_.advance(tick, tensor_of);
}

void Runner::run_passes(Run& run, std::span<const Batch> micro_batches, nn::KvCache* cache) {
  for (const Batch& batch : micro_batches) {
    ATOLL_CHECK(batch.tokens.spec() == tokens_, "planned for {}, given {}", tokens_.to_string(),
                batch.tokens.spec().to_string());
  }
  std::optional<std::int64_t> cached;
  if (cache != nullptr && !cache->is_paged()) cached = cache->length;
  const bool are_parts = model_.context != nullptr && model_.context->size > 1;
  micro_batches =
      device_batches_.on_device(run, micro_batches, model_.config.vocab_size, cached, are_parts);
  const auto queue = [&](Run& with) {
    visit_passes(with, with.training, /*idle=*/false, [&](const StagePass& pass) {
      for (std::int64_t tick = pass.first_tick; tick <= pass.last_tick; ++tick) {
        transfer_until(tick);
        act(with, schedule_.actions()[static_cast<std::size_t>(tick)],
            micro_batches[static_cast<std::size_t>(pass.micro_batch)], cache);
      }
    });
  };
  const bool as_graph = graphs_ != nullptr && run.training && micro_batches.size() == 1 &&
                        run.profile == nullptr && !listener_;
  try {
    if (as_graph) {
      graphs_->run(run, micro_batches.front(), store_.begins_step(), queue);
    } else {
      queue(run);
    }
  } catch (const std::exception& error) {
    transfers_.abandon(error.what());
    throw;
  }
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
  ATOLL_CHECK_EQ(std::ssize(micro_batches), schedule_.num_micro_batches());
  run.training = true;
  run_passes(run, micro_batches, nullptr);
}

double Runner::train(Run run, std::span<const Batch> micro_batches) {
  forward_backward(run, micro_batches);
  double sum = 0;
  for (std::size_t i = 0; i < outputs_.size(); ++i) sum += sum_of_losses(losses(i));
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
  return has_losses() ? sum_of_losses(losses()) : 0;
}

Tensor Runner::generate(Run run, const Batch& batch, nn::KvCache& cache) {
  ATOLL_CHECK(use_ == Use::kGenerate, "this runner was not planned for generation");
  run.training = false;
  run_passes(run, {&batch, 1}, &cache);
  return has_losses() ? outputs_.front() : Tensor();
}

}  // namespace atl::parallel
