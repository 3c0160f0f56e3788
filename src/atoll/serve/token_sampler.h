#pragma once

#include <cstdint>
#include <span>
#include <vector>

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

  /// The next token after `position` tokens of sequence `sequence`. Ties go to the lower id. Throws
  /// Error(kNumeric) for a logit that is NaN or +infinity.
  std::int32_t next(std::span<const float> logits, std::int64_t sequence, std::int64_t position);

 private:
  double weigh_all(std::span<const float> logits, double best);
  void drop_light(double total);

  SamplingOptions options_;
  std::vector<std::int32_t> order_;
  std::vector<double> weights_;
  std::vector<double> kept_;  // of order_, while weights_ are of all
};

}  // namespace atl::serve
