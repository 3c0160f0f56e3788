#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "atoll/data/row.h"
#include "atoll/data/token_source.h"
#include "atoll/text/tokenizer.h"
#include "atoll/train/state.h"

namespace atl::train {

/// How well a model predicts a text.
struct Evaluation {
  double loss = 0;  ///< mean negative log-likelihood, nats a token
  /// The same in bits per byte of text: comparable between tokenizers. Not a number where the
  /// tokens are all special ones, which stand for no byte.
  double bits_per_byte = 0;
  std::int64_t tokens = 0;  ///< predicted
  std::int64_t bytes = 0;   ///< of text that those tokens stand for
  double seconds = 0;

  double perplexity() const;
};

/// How a text is predicted.
struct EvaluateOptions {
  /// Only the first windows, in which so many tokens or more are predicted; 0: all.
  std::int64_t max_tokens = 0;
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

/// How a run cut its text into sequences.
struct TextCut {
  std::int64_t context = 0;
  data::Packing packing = data::Packing::kStream;
};

/// That of the run that a checkpoint is of; nothing for a directory that is no checkpoint. Throws
/// Error(kDamaged) naming the file when its settings do not say.
std::optional<TextCut> text_cut_of(const std::filesystem::path& directory);

/// One result for several texts, every token counting the same.
Evaluation combine(const std::vector<Evaluation>& parts);

}  // namespace atl::train
