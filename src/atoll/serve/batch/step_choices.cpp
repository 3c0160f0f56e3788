#include "atoll/serve/batch/step_choices.h"

#include <algorithm>
#include <exception>

namespace atl::serve {

std::vector<StepModel::Piece> model_pieces(std::span<const StepPiece> from) {
  std::vector<StepModel::Piece> pieces;
  for (const StepPiece& piece : from) {
    pieces.push_back({piece.tokens, piece.first_position, piece.blocks, piece.wanted,
                      piece.wants_hidden, piece.adapter});
  }
  return pieces;
}

StepChoices::StepChoices(StepModel& model, std::int64_t vocab_size)
    : model_(model),
      vocab_size_(vocab_size),
      rooms_(static_cast<std::size_t>(model.room().max_rows)) {}

std::vector<PieceResult> StepChoices::take(std::span<const StepPiece> pieces,
                                           std::span<const float> input) {
  std::vector<PieceResult> results(pieces.size());
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    const StepPiece& piece = pieces[p];
    const std::int64_t drawn =
        piece.first_drawn < 0 ? 0 : std::ssize(piece.tokens) - piece.first_drawn;
    results[p].targets.resize(piece.targets.size());
    results[p].target_errors.resize(piece.targets.size());
    results[p].drawn.resize(static_cast<std::size_t>(drawn));
    results[p].drawn_errors.resize(static_cast<std::size_t>(drawn));
  }
  const auto take_logits = [&](std::span<const StepModel::RowLogits> rows) {
    model_.threads().run(std::ssize(rows), [&](std::int64_t i) {
      const StepModel::RowLogits& row = rows[static_cast<std::size_t>(i)];
      take_row(pieces[row.piece], row, rooms_[static_cast<std::size_t>(i)], results[row.piece]);
    });
  };
  const auto take_hidden = [&](std::size_t piece, std::span<const float> hidden) {
    results[piece].hidden.assign(hidden.begin(), hidden.end());
  };
  model_.step(model_pieces(pieces), take_logits, take_hidden, input);
  return results;
}

void StepChoices::take_row(const StepPiece& piece, const StepModel::RowLogits& row,
                           ChoiceRoom& room, PieceResult& result) const {
  const auto at = static_cast<std::size_t>(row.row);
  if (at < piece.targets.size()) {
    try {
      result.targets[at] =
          token_result(row.logits, piece.targets[at], piece.choice.request->top_logprobs);
    } catch (const std::exception& error) {
      result.target_errors[at] = error.what();
    }
  }
  if (piece.first_drawn < 0 || row.row < piece.first_drawn) return;
  const auto drawn = static_cast<std::size_t>(row.row - piece.first_drawn);
  try {
    result.drawn[drawn] = choose_token(piece.choice, row.logits, piece.first_position + row.row + 1,
                                       vocab_size_, room);
  } catch (const std::exception& error) {
    result.drawn_errors[drawn] = error.what();
  }
}

}  // namespace atl::serve
