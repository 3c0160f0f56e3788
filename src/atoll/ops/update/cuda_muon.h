#pragma once

#include "atoll/ops/implementations.h"
#include "atoll/ops/update/muon.h"

namespace atl::ops::cuda {

Declined muon_momentum(Run& run, const MuonMomentum& numbers, Tensor grad, Tensor m,
                       Tensor direction);
/// x over its Frobenius norm, or over `least` if that is larger. The host learns nothing of it.
Declined muon_normalize(Run& run, double least, Tensor x);
std::size_t muon_normalize_scratch_bytes(const Spec& x);
/// square = a I + b gram + c square.
Declined muon_polynomial(Run& run, double a, double b, double c, Tensor gram, Tensor square);
Declined apply_direction(Run& run, double step_size, double decay, const UpdateTarget& target,
                         Tensor direction);

}  // namespace atl::ops::cuda
