#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/island/outer/algorithms.h"

namespace atl::island {

namespace {

// The paper gives every island m an outer optimizer of its own, which in round t gets
//
//     own fresh share + the others' share of the round before
//       = w Δm(t) + (mean(t - 1) - w Δm(t - 1))                  mean(0) = Δm(0) = 0
//
// so that islands' outer parameters differ, and nothing could be compared between them. SGD and
// Nesterov are linear, though: what the steps above sum up to is the response to mean(t - 1), which
// is the anchor that all have alike after t - 1 committed steps, plus the response to
// w (Δm(t) - Δm(t - 1)), which telescopes to a single step with w Δm(t) and a momentum that has
// seen only the island's own shares. So an island begins round t + 1 at
//
//     OuterOpt(anchor after t - 1 steps, own momentum, w Δm(t))
//
// and the anchor itself only ever moves by true means, as in DiLoCo. In the first round nothing has
// been committed: the anchor is the start of the run, and the step is by the own share alone.
class Eager final : public OuterAlgorithm {
 public:
  Eager(const OuterTiming& timing, const OuterOptimizer& optimizer)
      : OuterAlgorithm(timing,
                       {.begin_changes = true, .apply_reads = false, .apply_changes = false}),
        optimizer_(optimizer) {}

  // Where the parameters stood when the round began, and the momentum of the own shares.
  int num_kept_vectors() const override { return 1 + optimizer_.num_state_vectors(); }

  void reset(std::span<const float> anchor, const OwnFragment& own) const override {
    OuterAlgorithm::reset(anchor, own);
    std::copy(anchor.begin(), anchor.end(), start(own).begin());
    std::fill(momentum(own).begin(), momentum(own).end(), 0.0F);
  }

  void begin(std::span<const float> anchor, const OwnFragment& own, double share,
             std::span<float> delta) const override {
    const std::span<float> from = start(own);
    for (std::size_t i = 0; i < delta.size(); ++i) delta[i] = from[i] - own.params[i];
    // `from` has been read: it takes the weighted delta, and then the new start.
    const auto weight = static_cast<float>(share);
    for (std::size_t i = 0; i < delta.size(); ++i) from[i] = weight * delta[i];
    optimizer_.step(anchor, from, momentum(own), own.params, momentum(own), {});
    std::copy(own.params.begin(), own.params.end(), from.begin());
  }

  // The next begin() starts at the new anchor; until then the island trains on from where it is.
  void apply(std::span<const float> /*new_anchor*/, const OwnFragment& /*own*/) const override {}

  // Nobody has the delta: it is sent again, as a part of the next one, and is not in the momentum
  // that the others have.
  void rebase(std::span<const float> /*old_anchor*/, std::span<const float> /*new_anchor*/,
              std::span<const float> delta, double share, const OwnFragment& own) const override {
    if (delta.empty()) return;
    const std::span<float> from = start(own);
    for (std::size_t i = 0; i < delta.size(); ++i) from[i] += delta[i];
    const std::span<float> v = momentum(own);
    const auto weight = static_cast<float>(share);
    for (std::size_t i = 0; i < v.size(); ++i) v[i] -= weight * delta[i];
  }

 private:
  static std::span<float> start(const OwnFragment& own) {
    return own.kept.first(own.params.size());
  }
  static std::span<float> momentum(const OwnFragment& own) {
    return own.kept.subspan(own.params.size());
  }

  const OuterOptimizer& optimizer_;
};

}  // namespace

std::unique_ptr<OuterAlgorithm> make_eager(const OuterOptions& options,
                                           const OuterOptimizer& optimizer) {
  if (options.fragments != 1 || options.overlap != 0 || options.merge != 0) {
    throw user_error(
        "the algorithm eager exchanges all parameters beside the whole next round: {} fragments, "
        "overlap {} and merge {} need the algorithm streaming",
        options.fragments, options.overlap, options.merge);
  }
  if (!optimizer.is_linear()) {
    throw user_error(
        "the algorithm eager needs the outer optimizer sgd or nesterov: with {} an island's own "
        "share of a step cannot be told from the others'",
        options.optimizer.kind);
  }
  return std::make_unique<Eager>(OuterTiming{1, options.inner_steps, options.inner_steps},
                                 optimizer);
}

}  // namespace atl::island
