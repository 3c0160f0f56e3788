#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/island/outer/algorithms.h"

namespace atl::island {

namespace {

// The island trains on while what it handed in is exchanged, and its parameters are at any time
//
//     anchor - (what is handed in and not in the anchor) - (what it has trained since)
//
// An outer step of others shifts them as the anchor. One with its own replaces the first part by
// what became of it, so the parameters at the hand-in are kept: what they have moved by since is
// the second part.
class Async final : public OuterAlgorithm {
 public:
  explicit Async(const OuterTiming& timing) : OuterAlgorithm(timing, {.begin_changes = false}) {}

  // The parameters as they were handed in.
  int num_kept_vectors() const override { return 1; }

  void reset(std::span<const float> anchor, const OwnFragment& own) const override {
    OuterAlgorithm::reset(anchor, own);
    std::copy(anchor.begin(), anchor.end(), own.kept.begin());
  }

  void begin(std::span<const float> anchor, const OwnFragment& own, double /*share*/,
             std::span<float> delta) const override {
    for (std::size_t i = 0; i < anchor.size(); ++i) delta[i] = anchor[i] - own.params[i];
    std::copy(own.params.begin(), own.params.end(), own.kept.begin());
  }

  void apply(std::span<const float> new_anchor, const OwnFragment& own) const override {
    for (std::size_t i = 0; i < new_anchor.size(); ++i) {
      own.params[i] = new_anchor[i] + (own.params[i] - own.kept[i]);
    }
  }

  void rebase(std::span<const float> old_anchor, std::span<const float> new_anchor,
              std::span<const float> delta, double share, const OwnFragment& own) const override {
    OuterAlgorithm::rebase(old_anchor, new_anchor, delta, share, own);
    for (std::size_t i = 0; i < new_anchor.size(); ++i) {
      own.kept[i] += new_anchor[i] - old_anchor[i];
    }
  }
};

}  // namespace

std::unique_ptr<OuterAlgorithm> make_async(const OuterOptions& options) {
  if (options.fragments != 1 || options.overlap != 0 || options.merge != 0) {
    throw user_error(
        "the algorithm async exchanges all parameters beside the next round: {} fragments, overlap "
        "{} and merge {} need the algorithm streaming",
        options.fragments, options.overlap, options.merge);
  }
  return std::make_unique<Async>(OuterTiming{1, options.inner_steps, options.inner_steps});
}

}  // namespace atl::island
