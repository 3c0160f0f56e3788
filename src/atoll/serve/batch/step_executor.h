#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "atoll/serve/batch/choice.h"
#include "atoll/serve/batch/stage_status.h"
#include "atoll/serve/batch/step_model.h"

namespace atl::serve {

/// Tokens that continue one sequence in a step, and what is wanted behind them.
struct StepPiece {
  std::vector<std::int32_t> tokens;
  std::int64_t first_position = 0;
  std::vector<std::int32_t> blocks;  ///< see StepModel::Piece
  StepModel::Wanted wanted = StepModel::Wanted::kNothing;
  bool wants_hidden = false;
  const StepAdapter* adapter = nullptr;  ///< null: none. Of StepExecutor::adapter_rank() at most
  /// The tokens that follow rows 0, 1, ... already, whose log-probabilities are wanted.
  std::vector<std::int32_t> targets;
  /// From this row on a token is drawn behind each; -1: behind none.
  std::int64_t first_drawn = -1;
  ChoiceInput choice;
};

/// What a piece was taken through the model for.
struct PieceResult {
  std::vector<TokenResult> targets;  ///< as many as StepPiece::targets
  std::vector<TokenResult> drawn;    ///< behind StepPiece::first_drawn and the rows after it
  /// Why one of `targets` or of `drawn` could not be made; "": it was.
  std::vector<std::string> target_errors, drawn_errors;
  std::vector<float> hidden;  ///< (rows, C), where wanted
};

/// A step to be taken.
struct StepOrder {
  std::uint64_t epoch = 0;  ///< of the executor, when the step was planned
  std::uint64_t number = 0;
  std::vector<StepPiece> pieces;
};

/// A step that was taken.
struct StepResult {
  std::uint64_t number = 0;
  std::vector<PieceResult> pieces;
  std::string error;  ///< why there are no pieces; "": there are
};

/// Takes the steps that a BatchGenerator plans: a model of this process, or machines with some
/// layers each. Steps end in the order in which they begin. One thread calls it.
class StepExecutor {
 public:
  virtual ~StepExecutor() = default;

  virtual const StepRoom& room() const = 0;
  virtual const nn::ModelConfig& config() const = 0;
  /// Bytes of weights that a step reads, all layers together.
  virtual std::size_t bytes_per_step() const = 0;

  /// The greatest rank of a Linear of an adapter that pieces may have; 0: they may have none.
  virtual std::int64_t adapter_rank() const { return 0; }

  /// How many steps should be under way at once.
  virtual std::int64_t depth() const { return 1; }
  /// False: no step can begin now.
  virtual bool is_ready() const { return true; }
  /// Grows each time that the keys and values of all sequences are lost, and the steps under way
  /// with them.
  virtual std::uint64_t epoch() const { return 0; }
  /// Begins a step; one of an earlier epoch is dropped. What the pieces' choices point to is not
  /// used after the call.
  virtual void begin(const StepOrder& order) = 0;
  /// The next step that is done; nothing where none is.
  virtual std::optional<StepResult> take() = 0;
  /// `changed` is called, by any thread, when take(), is_ready() or epoch() may say something new.
  virtual void on_change(std::function<void()> /*changed*/) {}  // NOLINT(*-value-param)
  /// Of machines that have a part of the layers each.
  virtual std::vector<StageStatus> stages() const { return {}; }
};

}  // namespace atl::serve
