#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace atl::cli {

/// The seconds that call() takes.
template <typename Call>
double seconds_of(Call&& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The middle one, of an even number the upper of the two; there must be one.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace atl::cli
