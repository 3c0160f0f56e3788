#include "atoll/ops/cuda/products.h"

namespace atl::ops::cuda {

Declined multiply(Run& /*run*/, const MatmulArgs& /*args*/) {
  return "built without cuBLASLt";
}
Declined multiply_fp8(Run& /*run*/, const MatmulFp8Args& /*args*/) {
  return "built without cuBLASLt";
}

}  // namespace atl::ops::cuda
