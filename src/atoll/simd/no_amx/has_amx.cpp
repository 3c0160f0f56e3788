#include "atoll/simd/amx.h"

namespace atl::simd {

bool has_amx() {
  return false;
}

}  // namespace atl::simd
