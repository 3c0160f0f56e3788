#pragma once

#include "atoll/comm/transport.h"

namespace atl::comm {

/// A Transport whose run() takes tensors of this rank's GPU. Of others a Channel brings these to
/// host memory, and back.
class GpuTransport : public Transport {};

}  // namespace atl::comm
