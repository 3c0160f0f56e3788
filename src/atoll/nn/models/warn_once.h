#pragma once

#include <string>

namespace atl::nn {

/// Logs a warning that this process has not logged yet: a model's config.json is read several times
/// in a run.
void warn_once(const std::string& line);

}  // namespace atl::nn
