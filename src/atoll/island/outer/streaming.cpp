#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/island/outer/algorithms.h"

namespace atl::island {

namespace {

class Streaming final : public OuterAlgorithm {
 public:
  Streaming(const OuterTiming& timing, double merge)
      : OuterAlgorithm(timing, {.apply_reads = merge != 0}),
        own_share_(static_cast<float>(merge)),
        anchor_share_(static_cast<float>(1 - merge)) {}

  void begin(std::span<const float> anchor, const OwnFragment& own, double /*share*/,
             std::span<float> delta) const override {
    for (std::size_t i = 0; i < anchor.size(); ++i) delta[i] = anchor[i] - own.params[i];
  }

  // The inner steps since begin() are in the parameters but not in the delta; `merge` says how much
  // of them stays.
  void apply(std::span<const float> new_anchor, const OwnFragment& own) const override {
    if (own_share_ == 0) {  // 0 * x is no zero for every x
      std::copy(new_anchor.begin(), new_anchor.end(), own.params.begin());
      return;
    }
    for (std::size_t i = 0; i < new_anchor.size(); ++i) {
      own.params[i] = own_share_ * own.params[i] + anchor_share_ * new_anchor[i];
    }
  }

 private:
  float own_share_;
  float anchor_share_;
};

}  // namespace

std::unique_ptr<OuterAlgorithm> make_streaming(const OuterOptions& options) {
  if (options.fragments < 1 || options.inner_steps % options.fragments != 0) {
    throw user_error(
        "{} fragments cannot take turns evenly in {} inner steps: choose numbers of which one "
        "divides the other",
        options.fragments, options.inner_steps);
  }
  const std::int64_t interval = options.inner_steps / options.fragments;
  if (options.overlap < 0 || options.overlap > interval) {
    throw user_error(
        "overlap is {}: it must be from 0 to {}, the inner steps between one fragment and the next",
        options.overlap, interval);
  }
  if (!(options.merge >= 0 && options.merge < 1)) {
    throw user_error("merge is {}: it must be from 0 to below 1", options.merge);
  }
  return std::make_unique<Streaming>(OuterTiming{options.fragments, interval, options.overlap},
                                     options.merge);
}

}  // namespace atl::island
