#pragma once

#include <chrono>

#include "atoll/nn/axis.h"

namespace atl::nn {

/// Adds the time until it is destroyed to what layers have waited for the other ranks of an axis.
class Waiting {
 public:
  explicit Waiting(Axis& axis) : axis_(axis) {}
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  ~Waiting() {
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start_;
    axis_.waited_seconds += waited.count();
  }

 private:
  Axis& axis_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace atl::nn
