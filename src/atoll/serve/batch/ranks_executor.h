#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "atoll/serve/batch/step_executor.h"
#include "atoll/serve/model_ranks.h"

namespace atl::serve {

/// Takes steps with several ranks of this process, each a thread with its share of every product
/// and of the heads' keys and values (tensor parallelism). Sums over ranks run in rank order for
/// each row, so that a request's bits depend on the number of ranks, but not on its neighbours.
class RanksExecutor final : public StepExecutor {
 public:
  /// Makes the model of one rank, on its thread; the ranks outlive the model.
  using Open = std::function<std::unique_ptr<StepModel>(ModelRanks& ranks)>;

  /// Returns when all ranks have their models; throws what `open` has thrown. Ids below
  /// `vocab_size` may be drawn.
  RanksExecutor(int num_ranks, const Open& open, std::int64_t vocab_size);
  /// No step is under way.
  ~RanksExecutor() override;
  RanksExecutor(const RanksExecutor&) = delete;
  RanksExecutor& operator=(const RanksExecutor&) = delete;

  const StepRoom& room() const override;
  const nn::ModelConfig& config() const override;
  std::size_t bytes_per_step() const override;
  /// The step is done on all ranks when it returns.
  void begin(const StepOrder& order) override;
  std::optional<StepResult> take() override;

 private:
  struct Shared;

  std::unique_ptr<Shared> shared_;
};

}  // namespace atl::serve
