#pragma once

#include "atoll/ops/run.h"

namespace atl::ops {

/// The f32 multiply-adds this device can do, in FLOP/s: a loop of fused multiply-adds on registers
/// alone, on all of the run's threads at once, for about 30 ms, each thread counted as if it had a
/// CPU to itself. MFU is measured against it. On a
/// shared machine it moves by some percent from call to call.
double measure_peak_flops(Run& run);

/// The bytes a second that a copy reads and writes, of buffers that no cache holds, on all of the
/// run's threads; takes 256 MiB for about 100 ms.
double measure_copy_bandwidth(Run& run);
/// The same of bf16 multiply-adds in the tiles of AMX, on registers alone; 0 without AMX.
double measure_amx_peak_flops(Run& run);

}  // namespace atl::ops
