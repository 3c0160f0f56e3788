#include "atoll/train/progress/tokenize_progress.h"

#include <algorithm>

#include "atoll/base/log.h"
#include "atoll/base/quantity.h"

namespace atl::train {

std::function<void(const data::TokenizeProgress&)> log_progress(std::chrono::milliseconds every) {
  using Clock = std::chrono::steady_clock;
  return [every, last = Clock::now()](const data::TokenizeProgress& progress) mutable {
    if (Clock::now() - last < every) return;
    last = Clock::now();
    const auto total = static_cast<double>(std::max<std::uint64_t>(progress.bytes_total, 1));
    log::info("{:.0f}% tokenized: {} so far",
              100 * static_cast<double>(progress.bytes_done) / total,
              counted(static_cast<std::int64_t>(progress.tokens), "token"));
  };
}

}  // namespace atl::train
