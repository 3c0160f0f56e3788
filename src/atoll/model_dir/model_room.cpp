#include "atoll/model_dir/model_room.h"

#include "atoll/base/processes/cgroup.h"
#include "atoll/base/quantity.h"
#include "atoll/model_dir/model_source.h"
#include "atoll/nn/models/sizes.h"

namespace atl::model_dir {

std::string whose_memory(const ModelPath& directory, const nn::ModelConfig& config) {
  return fmt::format("; the model is that of {}: {}",
                     (base_directory(directory) / "config.json").string(), nn::size_list(config));
}

void check_weights(const ModelPath& directory, const nn::ModelConfig& config, const Device& device,
                   double bytes_per_weight, int num_ranks) {
  const std::size_t swap = device.kind() == DeviceKind::kCpu ? swap_memory() : 0;
  const double bytes = nn::least_parameters(config) * bytes_per_weight / num_ranks;
  if (bytes <= static_cast<double>(device.total_memory() + swap)) return;
  throw MemoryError(fmt::format(
      "{} of memory for weights{} are not to be had ({} may be used here){}",
      format_bytes(static_cast<std::uint64_t>(bytes)), num_ranks > 1 ? " on each rank" : "",
      format_bytes(device.total_memory()), whose_memory(directory, config)));
}

}  // namespace atl::model_dir
