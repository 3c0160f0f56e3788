#pragma once

// The settings of a run as its directory and its checkpoints keep them.

#include <string>
#include <utility>
#include <vector>

#include "atoll/base/settings/settings.h"

namespace atl::train {

/// Settings::to_toml(), but for secrets: checkpoints and runs are given away, and the address of a
/// webhook often holds a key. Of alerts.webhook only the host is written.
std::string written_toml(const Settings& settings);

/// Settings::key_values(), in the same way.
std::vector<std::pair<std::string, std::string>> written_key_values(const Settings& settings);

}  // namespace atl::train
