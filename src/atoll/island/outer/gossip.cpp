#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/island/outer/algorithms.h"

namespace atl::island {

namespace {

// NoLoCo's shape (arXiv 2506.10911), with another average: each island makes an outer step from its
// own pseudo-gradient, and partners take the mean of what they then have, anchors and momentum. The
// outer step is linear in all three, so the mean over all islands moves as with DiLoCo; and
// partners end with the same bits, which their hashes prove. NoLoCo sends pseudo-gradients and
// anchors, and draws anchors together by a term in the momentum.
class Gossip final : public OuterAlgorithm {
 public:
  explicit Gossip(const OuterTiming& timing) : OuterAlgorithm(timing, {.apply_reads = false}) {}

  void begin(std::span<const float> anchor, const OwnFragment& own, double /*share*/,
             std::span<float> delta) const override {
    for (std::size_t i = 0; i < anchor.size(); ++i) delta[i] = anchor[i] - own.params[i];
  }

  void apply(std::span<const float> new_anchor, const OwnFragment& own) const override {
    std::copy(new_anchor.begin(), new_anchor.end(), own.params.begin());
  }
};

}  // namespace

std::unique_ptr<OuterAlgorithm> make_gossip(const OuterOptions& options) {
  if (options.fragments != 1 || options.overlap != 0 || options.merge != 0) {
    throw user_error(
        "the algorithm gossip exchanges all parameters at once and waits: {} fragments, overlap {} "
        "and merge {} need the algorithm streaming",
        options.fragments, options.overlap, options.merge);
  }
  if (options.codec != "f32") {
    throw user_error(
        "the algorithm gossip exchanges parameters, which the codec {} would round, and not their "
        "changes: it needs the codec f32",
        options.codec);
  }
  return std::make_unique<Gossip>(OuterTiming{1, options.inner_steps, 0, /*ends_with_mean=*/true});
}

}  // namespace atl::island
