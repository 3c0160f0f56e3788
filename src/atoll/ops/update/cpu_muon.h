#pragma once

// The elementwise pieces of Muon in f32 and vector units; arguments as in ops/update/muon.h,
// already checked.

#include "atoll/ops/update/muon.h"

namespace atl::ops::cpu {

void muon_momentum(Run& run, const MuonMomentum& numbers, Tensor grad, Tensor m, Tensor direction);

/// y = alpha x + beta y; x may be y.
void combine(Run& run, double alpha, Tensor x, double beta, Tensor y);

void apply_direction(Run& run, double step_size, double decay, const UpdateTarget& target,
                     Tensor direction);

}  // namespace atl::ops::cpu
