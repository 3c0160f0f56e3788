#include "atoll/train/island/part.h"

#include <algorithm>
#include <utility>

namespace atl::train {

IslandPart::IslandPart(const island::OuterOptions& options, IslandParams& params)
    : params_(params),
      optimizer_(island::make_outer_optimizer(options.optimizer)),
      algorithm_(island::make_outer_algorithm(options, *optimizer_)) {
  std::vector<island::StatePart> parts;
  for (int f = 0; f < params_.num_fragments(); ++f) {
    parts.emplace_back(params_.whole_elements(f), params_.own_part(f),
                       1 + optimizer_->num_state_vectors());
    kept_.emplace_back(params_.elements(f) *
                       static_cast<std::size_t>(algorithm_->num_kept_vectors()));
  }
  outer_ = std::make_unique<island::OuterState>(std::move(parts), *optimizer_);
  base_.resize(kept_.size());
}

island::OwnFragment IslandPart::own(int f, std::span<float> packed) {
  return {packed, kept_[static_cast<std::size_t>(f)]};
}

std::int64_t IslandPart::base_outer_step() const {
  std::int64_t newest = 0;
  for (const auto& state : base_) newest = std::max(newest, state->outer_step);
  return newest;
}

void IslandPart::start(int f, const island::WholeHash& whole) {
  const std::span<float> packed = params_.values(f);
  outer_->begin(f, packed, whole);
  base_[static_cast<std::size_t>(f)] = outer_->current(f);
  algorithm_->reset(base(f)->anchor(), own(f, packed));
}

void IslandPart::load(int f, std::int64_t outer_step, std::vector<float> values,
                      const island::WholeHash& whole) {
  outer_->replace(f, outer_step, std::move(values), whole);
  base_[static_cast<std::size_t>(f)] = outer_->current(f);
}

void IslandPart::reset(int f, std::shared_ptr<const island::FragmentState> now) {
  base_[static_cast<std::size_t>(f)] = std::move(now);
  algorithm_->reset(base(f)->anchor(), own(f, params_.overwrite(f)));
  params_.mark_changed(f);
}

std::shared_ptr<const std::vector<float>> IslandPart::hand_in(int f, double share) {
  const std::span<float> packed = params_.values(f);
  // The client may still have the one before.
  if (!delta_ || delta_.use_count() > 1) delta_ = std::make_shared<std::vector<float>>();
  delta_->resize(packed.size());
  share_ = share;
  algorithm_->begin(base(f)->anchor(), own(f, packed), share, *delta_);
  if (algorithm_->param_use().begin_changes) params_.mark_changed(f);
  return delta_;
}

void IslandPart::apply(int f, std::shared_ptr<const island::FragmentState> now) {
  const island::OuterParamUse& use = algorithm_->param_use();
  if (use.apply_changes) {
    const std::span<float> packed = use.apply_reads ? params_.values(f) : params_.overwrite(f);
    algorithm_->apply(now->anchor(), own(f, packed));
    params_.mark_changed(f);
  }
  base_[static_cast<std::size_t>(f)] = std::move(now);
}

void IslandPart::rebase(int f, std::shared_ptr<const island::FragmentState> now, bool takes_back) {
  const std::span<float> packed = params_.values(f);
  const std::span<const float> delta =
      takes_back ? std::span<const float>(*delta_) : std::span<const float>();
  algorithm_->rebase(base(f)->anchor(), now->anchor(), delta, share_, own(f, packed));
  params_.mark_changed(f);
  base_[static_cast<std::size_t>(f)] = std::move(now);
}

std::vector<float> IslandPart::kept_without_hand_in(int f, int in_flight) const {
  std::vector<float> kept = kept_[static_cast<std::size_t>(f)];
  if (kept.empty() || in_flight != f) return kept;
  const std::span<const float> anchor = base(f)->anchor();
  std::vector<float> packed(outer_->elements(f));
  algorithm_->rebase(anchor, anchor, *delta_, share_, {packed, kept});
  return kept;
}

}  // namespace atl::train
