#pragma once

#include <cmath>
#include <cstdint>

#include "atoll/nn/param.h"

namespace atl::nn {

/// How a factor A of `in` columns starts: with the variance of PEFT's U(-1/sqrt(in), 1/sqrt(in)).
inline Init first_of_a(std::int64_t in) {
  return Init::normal(1.0 / std::sqrt(3.0 * static_cast<double>(in)));
}

}  // namespace atl::nn
