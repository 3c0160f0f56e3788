#pragma once

#include <chrono>
#include <functional>

#include "atoll/data/tokenize.h"

namespace atl::train {

/// For data::tokenize_corpus where nobody watches a line that moves: logs how far it is, when at
/// least `every` went by since it was made or the line before.
std::function<void(const data::TokenizeProgress&)> log_progress(std::chrono::milliseconds every);

}  // namespace atl::train
