#pragma once

#include <string>
#include <vector>

#include "atoll/base/processes/machine.h"
#include "atoll/base/quantity.h"
#include "atoll/cli/build.h"
#include "atoll/device/device.h"

namespace atl::cli {

/// Something that is wrong with a machine, and what to do about it.
struct Finding {
  std::string what;
  std::string fix;
};

/// What would make training fail or crawl here, worst first.
std::vector<Finding> diagnose(const Machine& machine, const Disk& disk, const Build& build,
                              const GpuReport& gpus, const std::string& cpu_features);

}  // namespace atl::cli
