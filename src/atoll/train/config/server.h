#pragma once

#include "atoll/param_server/messages.h"
#include "atoll/param_server/transport.h"
#include "atoll/train/config/config.h"

namespace atl::train {

class SettingRegistry;

/// Registers sync.*.
void add_sync(SettingRegistry& settings, SyncSettings& sync);

/// How a worker of this run reaches and knows servers and scheduler.
param_server::LinkOptions link_of(const SyncSettings& sync);

/// What sync.consistency means; ssp with no staleness is bsp.
param_server::Consistency consistency_of(const SyncSettings& sync);

/// How many lanes a step is cut into, each with its own push: workers, or with train.exact
/// micro-batches, whose sum does not depend on the number of workers then.
std::int64_t num_lanes(const TrainConfig& config);

/// How far workers and servers move towards each other in one average (easgd).
double elasticity_of(const SyncSettings& sync);

}  // namespace atl::train
