#pragma once

// The load of the experts, which the router's balance loss is made of, on the host.

#include <cstdint>
#include <vector>

#include "atoll/ops/run.h"

namespace atl::ops::ref {

/// How often each expert was chosen.
inline std::vector<std::int64_t> counts_of(const Tensor& experts, std::int64_t num_experts) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(num_experts));
  const auto* chosen = experts.data<std::int32_t>();
  for (std::int64_t i = 0; i < experts.num_elements(); ++i) {
    ATOLL_CHECK(chosen[i] >= 0 && chosen[i] < num_experts, "expert {} of {}", chosen[i],
                num_experts);
    ++counts[static_cast<std::size_t>(chosen[i])];
  }
  return counts;
}

/// What f_e of RouterLosses is made of.
struct Load {
  std::vector<double> counts;  ///< how often each expert was chosen
  double tokens = 0;           ///< by so many tokens
};

/// `given` as RouterLosses::counts.
inline Load load_of(const Tensor& given, const Tensor& experts, std::int64_t num_experts) {
  Load load;
  if (given.defined()) {
    load.counts.assign(given.data<double>(), given.data<double>() + num_experts);
  } else {
    const std::vector<std::int64_t> counts = counts_of(experts, num_experts);
    load.counts.assign(counts.begin(), counts.end());
  }
  for (const double count : load.counts) load.tokens += count;
  load.tokens /= static_cast<double>(experts.dim(1));
  return load;
}

/// d(loss)/d(share of an expert) of one token, for each expert, where the balance loss weighs
/// `weight` in what is differentiated.
template <typename T>
std::vector<T> balance_slopes(const Load& load, double weight) {
  const double scale = weight * static_cast<double>(load.counts.size()) / load.tokens;
  std::vector<T> slopes;
  for (const double count : load.counts) slopes.push_back(static_cast<T>(scale * count));
  return slopes;
}

}  // namespace atl::ops::ref
