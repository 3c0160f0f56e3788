#include "atoll/optim/clip.h"

#include <cmath>

#include "atoll/ops/elementwise/elementwise.h"

namespace atl::optim {

double grad_norm(Run& run, Tensor grads) {
  return std::sqrt(ops::sum_of_squares(run, grads));
}

double clip_scale(double norm, double max_norm) {
  if (max_norm <= 0 || norm <= max_norm) return 1.0;
  return max_norm / norm;
}

}  // namespace atl::optim
