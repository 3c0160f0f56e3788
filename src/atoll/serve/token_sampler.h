#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "atoll/ops/sample_token/sample_token.h"

namespace atl::serve {

/// How the next token is chosen from the logits.
struct SamplingOptions {
  double temperature = 1.0;  ///< divides the logits; 0: always the most likely token
  std::int64_t top_k = 0;    ///< only the k most likely tokens; 0: all
  double top_p = 1.0;        ///< only the smallest set with this much probability (Holtzman 2020)
  std::uint64_t seed = 0;

  /// Throws Error(kUser) naming the option that makes no sense.
  void validate() const;
};

/// Chooses tokens. The draw for a position is a pure function of (seed, sequence, position), so a
/// generation repeats whatever else runs beside it.
class TokenSampler {
 public:
  explicit TokenSampler(const SamplingOptions& options);

  /// How the next token after `position` tokens of sequence `sequence` is drawn.
  ops::TokenDraw draw(std::int64_t sequence, std::int64_t position) const;
  /// The token that such a draw has given. Throws Error(kNumeric) for a logit that is NaN or
  /// +infinity.
  static std::int32_t checked(const ops::DrawnToken& drawn);
  /// The same token, of logits in host memory. Ties go to the lower id. Throws as checked().
  std::int32_t next(std::span<const float> logits, std::int64_t sequence, std::int64_t position);

 private:
  SamplingOptions options_;
  std::vector<std::uint64_t> ranks_, weights_;  // what next() works on
};

}  // namespace atl::serve
