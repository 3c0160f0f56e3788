#include "atoll/train/ranks/gpu_places.h"

#include <algorithm>

#include "atoll/base/error.h"

namespace atl::train {

int gpu_index(std::int64_t index, int place, int ranks_here, int num_gpus) {
  if (index >= 0) return static_cast<int>(index);
  if (num_gpus == 1) return 0;  // others may see another as their first: see refuse_shared_gpus
  if (num_gpus == 0 || place < num_gpus) return place;
  throw user_error(
      "{} ranks run on this machine, and number {} of them sees {} GPUs: start no more "
      "ranks than GPUs; where each rank is given GPUs of its own (srun --gpus-per-task), set "
      "--device.index=0",
      ranks_here, place + 1, num_gpus);
}

void refuse_shared_gpus(std::span<const std::int64_t> gpus) {
  for (auto second = gpus.begin(); second != gpus.end(); ++second) {
    const auto first = std::find(gpus.begin(), second, *second);
    if (*second == 0 || first == second) continue;
    throw user_error(
        "ranks {} and {} would compute on one GPU: leave device.index out, so that each rank of a "
        "machine takes the next, and start no more ranks than a machine has GPUs",
        first - gpus.begin(), second - gpus.begin());
  }
}

}  // namespace atl::train
