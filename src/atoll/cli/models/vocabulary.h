#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "atoll/text/tokenizer.h"
#include "atoll/train/config/config.h"

namespace atl::cli {

/// The vocabulary that a run will have, as far as it is known before the run.
struct Vocabulary {
  std::int64_t size = 0;
  std::string origin;                  ///< who says so
  std::optional<Tokenizer> tokenizer;  ///< if it is there already; a run keeps it in memory
};

/// From what is there already: tokens, a tokenizer; data.vocab_size is what a tokenizer that is
/// still to be trained is asked for. Throws Error(kUser) for a corpus that a run would refuse.
Vocabulary find_vocabulary(const train::TrainConfig& config);

}  // namespace atl::cli
