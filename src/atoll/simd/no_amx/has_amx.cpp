#include "atoll/simd/amx.h"

namespace atl::simd {

bool has_amx() {
  return false;
}

bool has_vnni() {
  return false;
}

}  // namespace atl::simd
