#include "atoll/ckpt/checkpoint_newest.h"

#include <cstdint>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/ckpt/checkpoint_paths.h"

namespace atl::ckpt {

namespace fs = std::filesystem;

std::optional<CheckpointInfo> newest_of(const fs::path& root, ThreadPool* threads,
                                        const std::function<bool(const fs::path&)>& takes) {
  std::vector<std::int64_t> steps = checkpoint_steps(root);
  while (!steps.empty()) {
    bool is_any_there = false;
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
      const fs::path directory = root / checkpoint_name(*step);
      if (!takes(directory)) continue;
      is_any_there = true;
      try {
        return verify_checkpoint(directory, threads);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::kDamaged) throw;
        log::warning("checkpoint {} is passed over: {}", checkpoint_name(*step), error.what());
      }
    }
    if (is_any_there) break;
    steps = checkpoint_steps(root);  // all were removed, because there are newer ones
  }
  if (steps.empty()) return std::nullopt;
  throw damaged_error(
      "none of the {} checkpoints in {} is whole (see the warnings above); bring one back from a "
      "copy, or move them away to start anew",
      steps.size(), root.string());
}

std::optional<CheckpointInfo> newest_verified(const fs::path& root, ThreadPool* threads) {
  return newest_of(root, threads, [](const fs::path&) { return true; });
}

}  // namespace atl::ckpt
