#include "atoll/train/state.h"

#include <algorithm>
#include <vector>

namespace atl::train {

namespace {

std::unique_ptr<nn::Model> build(const StateOptions& options) {
  auto model = nn::build_model(options.model, options.build);
  if (options.lora) nn::add_lora(*model, *options.lora);
  return model;
}

}  // namespace

TrainState::TrainState(const StateOptions& options)
    : options_(options),
      model_(build(options)),
      store_(*model_, options.training),
      runner_(*model_, options.training ? parallel::Use::kTrain : parallel::Use::kEvaluate,
              options.micro_batch, options.context) {
  store_.request(plan_);
  runner_.request(plan_);
  if (options.training) {
    optimizer_ = optim::make_optimizer(options.optimizer, store_.flat(), store_.ranges());
    optimizer_->request(plan_);
    // The update comes after the last pass: its scratch shares the memory of activations.
    const std::int64_t tick = MemoryPlan::kForever - 1;
    optimizer_scratch_request_ =
        plan_.request("optimizer scratch", "scratch", optimizer_->scratch_bytes(), tick, tick);
  }
  plan_.place();
}

void TrainState::allocate(Device& device) {
  arena_ = std::make_unique<Arena>(device, plan_);
  store_.bind(*arena_);
  runner_.bind(*arena_);
  if (!options_.training) return;
  optimizer_->bind(*arena_);
  optimizer_scratch_ = {arena_->data(optimizer_scratch_request_), optimizer_->scratch_bytes()};
}

std::string describe_memory(const MemoryPlan& plan) {
  std::vector<std::string> groups;
  for (const Placement& placement : plan.placements()) {
    if (std::find(groups.begin(), groups.end(), placement.group) == groups.end()) {
      groups.push_back(placement.group);
    }
  }
  const auto line = [](const std::string& name, std::size_t bytes) {
    return fmt::format("  {:<14} {:>12.2f} MiB\n", name, static_cast<double>(bytes) / (1 << 20));
  };
  std::string text;
  for (const std::string& group : groups) text += line(group, plan.peak_bytes(group));
  return text + line("total", plan.total_bytes());
}

}  // namespace atl::train
