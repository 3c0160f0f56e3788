#pragma once

#include "atoll/ops/codes/factors.h"
#include "atoll/ops/implementations.h"

namespace atl::ops::cuda {

/// See ops/codes/factors.h.
Declined project_rows(Run& run, const Factors& factors);
Declined project_columns(Run& run, const Factors& factors, const Tensor& flags);
Declined keep_residual(Run& run, const Factors& factors, const Tensor& flags);
Declined restore_product(Run& run, const Factors& factors, const Tensor& flags);
Declined orthogonalise(Run& run, const Orthogonalise& args);

}  // namespace atl::ops::cuda
