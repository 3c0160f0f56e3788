#include "atoll/island/outer/memory.h"

#include <algorithm>
#include <numeric>

#include "atoll/compress/codec.h"
#include "atoll/island/policy/policy.h"

namespace atl::island {

std::vector<OuterMemoryPart> outer_memory(const OuterOptions& options,
                                          std::span<const std::int64_t> elements) {
  const auto optimizer = make_outer_optimizer(options.optimizer);
  const auto algorithm = make_outer_algorithm(options, *optimizer);
  const auto codec = compress::make_codec(options.codec);
  const auto sum_codec = compress::make_codec(sum_codec_of(options.codec));
  const auto all =
      static_cast<std::size_t>(std::accumulate(elements.begin(), elements.end(), std::int64_t{0}));
  const std::int64_t largest = *std::max_element(elements.begin(), elements.end());
  const std::size_t floats = sizeof(float) * static_cast<std::size_t>(largest);
  const auto state_vectors = static_cast<std::size_t>(1 + optimizer->num_state_vectors());
  const auto kept_vectors = static_cast<std::size_t>(algorithm->num_kept_vectors());
  // With gossip whole states are exchanged.
  const std::size_t exchanged = options.algorithm == "gossip" ? state_vectors : 1;
  const std::size_t delta = exchanged * codec->max_bytes(largest);
  const std::size_t sums = exchanged * sum_codec->max_bytes(largest);
  // The mean and the new state; where inner steps go on meanwhile, also the parameters that they
  // started from.
  const std::size_t states = algorithm->apply_after() > 0 ? 2 * state_vectors : state_vectors;
  std::vector<OuterMemoryPart> parts = {
      {"parameters, as sent", floats},
      {"anchor, outer optimizer", sizeof(float) * all * state_vectors},
      {"next outer step", floats * (states + 1)},
      {"pseudo-gradient", floats},
      {"exchange", delta + sums + std::max(delta, sums)}};
  if (exchanged > 1) parts.push_back({"state, as exchanged", 2 * exchanged * floats});
  if (kept_vectors > 0) parts.push_back({"own state", sizeof(float) * all * kept_vectors});
  if (codec->wants_error()) parts.push_back({"error feedback", 2 * sizeof(float) * all});
  return parts;
}

}  // namespace atl::island
