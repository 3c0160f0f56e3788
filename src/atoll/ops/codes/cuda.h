#pragma once

#include "atoll/ops/codes/codes.h"
#include "atoll/ops/implementations.h"

namespace atl::ops::cuda {

/// See ops/codes/codes.h.
Declined encode_codes(Run& run, const EncodeCodes& args);
Declined decode_codes(Run& run, const DecodeCodes& args);

}  // namespace atl::ops::cuda
