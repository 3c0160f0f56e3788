#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "atoll/serve/batch/step_choices.h"
#include "atoll/serve/batch/step_executor.h"

namespace atl::serve {

/// Takes steps with a model of this process: a step is done when begin() returns.
class LocalExecutor final : public StepExecutor {
 public:
  /// Ids below `vocab_size` may be drawn.
  LocalExecutor(std::unique_ptr<StepModel> model, std::int64_t vocab_size)
      : model_(std::move(model)), choices_(*model_, vocab_size) {}

  const StepRoom& room() const override { return model_->room(); }
  const nn::ModelConfig& config() const override { return model_->model().config; }
  std::size_t bytes_per_step() const override { return model_->bytes_per_step(); }
  std::int64_t adapter_rank() const override { return model_->adapter_rank(); }
  void begin(const StepOrder& order) override {
    done_.push_back({.number = order.number, .pieces = choices_.take(order.pieces)});
  }
  std::optional<StepResult> take() override {
    if (done_.empty()) return std::nullopt;
    std::optional<StepResult> first = std::move(done_.front());
    done_.pop_front();
    return first;
  }

 private:
  std::unique_ptr<StepModel> model_;
  StepChoices choices_;
  std::deque<StepResult> done_;
};

}  // namespace atl::serve
