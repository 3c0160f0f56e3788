#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "atoll/serve/batch/step_executor.h"

namespace atl::serve {

/// The pieces of a step as a StepModel takes them. `from` must outlive them.
std::vector<StepModel::Piece> model_pieces(std::span<const StepPiece> from);

/// Takes steps through a model that has the head, and chooses what is wanted of its logits.
class StepChoices {
 public:
  /// Ids below `vocab_size` may be drawn. The model must outlive this.
  StepChoices(StepModel& model, std::int64_t vocab_size);

  /// `input`: see StepModel::step. An error of one piece stands in its result.
  std::vector<PieceResult> take(std::span<const StepPiece> pieces,
                                std::span<const float> input = {});

 private:
  void take_row(const StepPiece& piece, const StepModel::RowLogits& row, ChoiceRoom& room,
                PieceResult& result) const;

  StepModel& model_;
  std::int64_t vocab_size_;
  std::vector<ChoiceRoom> rooms_;
};

}  // namespace atl::serve
