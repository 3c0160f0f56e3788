#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "atoll/data/row.h"
#include "atoll/data/token_source.h"
#include "atoll/text/tokenizer.h"
#include "atoll/train/step/state.h"

namespace atl::train {

/// How well a model predicts a text.
struct Evaluation {
  double loss = 0;  ///< mean negative log-likelihood, nats a token
  /// The loss in bits per byte of text, comparable between tokenizers. NaN where all predicted
  /// tokens are special tokens, which stand for no byte.
  double bits_per_byte = 0;
  std::int64_t tokens = 0;  ///< predicted tokens
  std::int64_t bytes = 0;   ///< bytes of text that these tokens stand for
  double seconds = 0;
  /// Of answers that are compared: sums over the pairs. The loss is then their mean loss, `tokens`
  /// are those of answers, and there are no bytes.
  std::optional<nn::PreferenceSums> preferences = {};

  double perplexity() const;
};

/// How a text is predicted.
struct EvaluateOptions {
  /// Evaluates only the first windows, until this many tokens are predicted; 0: all windows.
  std::int64_t max_tokens = 0;
  data::Packing packing = data::Packing::kStream;
  /// Called before each batch. When it returns true, the result covers the tokens predicted so far.
  std::function<bool()> stop;
};

/// Predicts every token of `source` except the first, in windows of the state's context; a window
/// does not see the window before it. Where the text has a loss mask, predicts only tokens in the
/// mask. Changes no parameter. Where the state has ranks, all ranks must call it, all ranks get the
/// result, and `stop` must return the same on all ranks.
Evaluation evaluate(TrainState& state, Stream& stream, const data::TokenSource& source,
                    const Tokenizer& tokenizer, const EvaluateOptions& options = {});

/// Combines the results of several texts into one result; every token has the same weight.
Evaluation combine(const std::vector<Evaluation>& parts);

}  // namespace atl::train
