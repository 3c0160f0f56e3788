#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/island/outer/algorithms.h"

namespace atl::island {

namespace {

class DiLoCo final : public OuterAlgorithm {
 public:
  explicit DiLoCo(const OuterTiming& timing) : OuterAlgorithm(timing, {.apply_reads = false}) {}

  void begin(std::span<const float> anchor, const OwnFragment& own, double /*share*/,
             std::span<float> delta) const override {
    for (std::size_t i = 0; i < anchor.size(); ++i) delta[i] = anchor[i] - own.params[i];
  }

  void apply(std::span<const float> new_anchor, const OwnFragment& own) const override {
    std::copy(new_anchor.begin(), new_anchor.end(), own.params.begin());
  }
};

}  // namespace

std::unique_ptr<OuterAlgorithm> make_diloco(const OuterOptions& options) {
  if (options.fragments != 1 || options.overlap != 0 || options.merge != 0) {
    throw user_error(
        "the algorithm diloco exchanges all parameters at once and waits: {} fragments, overlap {} "
        "and merge {} need the algorithm streaming",
        options.fragments, options.overlap, options.merge);
  }
  return std::make_unique<DiLoCo>(OuterTiming{1, options.inner_steps, 0});
}

}  // namespace atl::island
