#pragma once

namespace atl::ops {

/// Which operands are read transposed. Y = X W^T of a Linear is kNT, its input gradient kNN, its
/// weight gradient kTN.
enum class Transpose { kNN, kNT, kTN };

}  // namespace atl::ops
