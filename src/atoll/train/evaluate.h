#pragma once

#include <cstdint>
#include <functional>

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

/// Predicts every token of `source` but the first, in windows of the state's context (each window
/// begins without memory of the one before). `max_tokens` > 0: only the first windows, that many
/// tokens at least. Changes no parameter. `stop` is asked before each batch; when it says true the
/// result covers what was predicted until then.
Evaluation evaluate(TrainState& state, Stream& stream, const data::TokenSource& source,
                    const Tokenizer& tokenizer, std::int64_t max_tokens = 0,
                    const std::function<bool()>& stop = {});

}  // namespace atl::train
