#include "atoll/train/step/error_feedback.h"

#include "atoll/base/check.h"
#include "atoll/tensor/host_access.h"

namespace atl::train {

void ResidualGradient::allocate(const parallel::ParamStore& store) {
  ATOLL_CHECK(store.grads().dtype() == Dtype::kF32, "owed gradients of {}",
              store.grads().spec().to_string());
  ranges_.assign(store.ranges().begin(), store.ranges().end());
  std::int64_t count = 0;
  for (const optim::ParamRange& range : ranges_) count += range.count;
  values_.assign(static_cast<std::size_t>(count), 0.0F);
}

std::vector<optim::StateTensor> ResidualGradient::state() const {
  std::vector<optim::StateTensor> pieces;
  if (is_empty()) return pieces;
  const Tensor all(values_.data(), {Dtype::kF32, {std::ssize(values_)}});
  std::int64_t at = 0, first = 0, end = -1;
  for (const optim::ParamRange& range : ranges_) {
    // Ranges that touch are one piece.
    if (range.begin != end) {
      first = at;
      pieces.push_back({kResidualGradient, range.begin, {}});
    }
    at += range.count;
    end = range.begin + range.count;
    pieces.back().tensor = all.rows(first, at);
  }
  return pieces;
}

void ResidualGradient::add_to(const parallel::ParamStore& store, float share) const {
  if (is_empty()) return;
  update_on_host<float>(store.grads(), [&](std::span<float> grads) {
    const float* residual = values_.data();
    for (const optim::ParamRange& range : ranges_) {
      float* to = &grads[static_cast<std::size_t>(range.in_grads())];
      for (std::int64_t i = 0; i < range.count; ++i) to[i] += share * *residual++;
    }
  });
}

}  // namespace atl::train
