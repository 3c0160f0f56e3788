#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "atoll/data/row.h"
#include "atoll/data/token_source.h"
#include "atoll/text/tokenizer.h"
#include "atoll/train/state.h"

namespace atl::train {

/// How well a model predicts a text.
struct Evaluation {
  double loss = 0;  ///< mean negative log-likelihood, nats a token
  /// The same in bits per byte of text: comparable between tokenizers.
  double bits_per_byte = 0;
  std::int64_t tokens = 0;  ///< predicted
  std::int64_t bytes = 0;   ///< of text that those tokens stand for
  double seconds = 0;

  double perplexity() const;
};

/// How a text is predicted.
struct EvaluateOptions {
  std::int64_t max_tokens = 0;  ///< only the first windows, that many tokens at least; 0: all
  data::Packing packing = data::Packing::kStream;
  /// Asked before each batch; when it says true the result covers what was predicted until then.
  std::function<bool()> stop;
};

/// Predicts every token of `source` but the first, in windows of the state's context (each window
/// begins without memory of the one before); of a text with a loss mask, the tokens in it alone.
/// Changes no parameter. Where the state has ranks, every one must call it, all get the result, and
/// `stop` must say the same to all.
Evaluation evaluate(TrainState& state, Stream& stream, const data::TokenSource& source,
                    const Tokenizer& tokenizer, const EvaluateOptions& options = {});

/// One result for several texts, every token counting the same.
Evaluation combine(const std::vector<Evaluation>& parts);

}  // namespace atl::train
