#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "atoll/nn/lora.h"
#include "atoll/nn/models/family.h"
#include "atoll/optim/optimizer.h"
#include "atoll/parallel/param_store.h"
#include "atoll/parallel/runner.h"

namespace atl::train {

/// What one rank's memory depends on.
struct StateOptions {
  nn::ModelConfig model;
  nn::BuildOptions build;
  optim::OptimizerOptions optimizer;
  std::optional<nn::LoraOptions> lora;  ///< adapters, which alone are then trained
  std::int64_t micro_batch = 1;         ///< sequences in one forward pass
  std::int64_t context = 1;             ///< tokens in a sequence
  bool training = true;                 ///< false: parameters and a forward pass only
};

/// The model, its optimizer and the memory of one rank. Planned by the constructor; nothing is
/// taken from the device before allocate(), so that `atoll plan` prints what a run will use from
/// the code that the run uses.
class TrainState {
 public:
  explicit TrainState(const StateOptions& options);

  const StateOptions& options() const { return options_; }
  const MemoryPlan& memory() const { return plan_; }
  nn::Model& model() { return *model_; }
  parallel::ParamStore& store() { return store_; }
  parallel::Runner& runner() { return runner_; }
  /// Only in training.
  optim::Optimizer& optimizer() { return *optimizer_; }
  /// What one update may overwrite: optimizer().scratch_bytes().
  std::span<std::byte> optimizer_scratch() const { return optimizer_scratch_; }

  /// Takes the planned memory from `device`, which must outlive this.
  void allocate(Device& device);

 private:
  StateOptions options_;
  std::unique_ptr<nn::Model> model_;
  parallel::ParamStore store_;
  parallel::Runner runner_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  MemoryPlan plan_;
  std::unique_ptr<Arena> arena_;
  int optimizer_scratch_request_ = -1;
  std::span<std::byte> optimizer_scratch_;
};

/// The memory plan as a table for people: bytes by group at the worst moment, and the total.
std::string describe_memory(const MemoryPlan& plan);

}  // namespace atl::train
