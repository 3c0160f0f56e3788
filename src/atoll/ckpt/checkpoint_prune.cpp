#include "atoll/ckpt/checkpoint.h"

#include "atoll/base/check.h"
#include "atoll/base/files/file.h"
#include "atoll/ckpt/checkpoint_hold.h"
#include "atoll/ckpt/checkpoint_paths.h"

namespace atl::ckpt {

namespace fs = std::filesystem;

int prune_checkpoints(const fs::path& root, int keep, bool is_verified,
                      const std::set<std::int64_t>& spared) {
  ATOLL_CHECK(keep >= 1, "keep {}", keep);
  const std::vector<std::int64_t> steps = checkpoint_steps(root);
  if (steps.size() <= static_cast<std::size_t>(keep)) return 0;
  if (!is_verified) verify_checkpoint(root / checkpoint_name(steps.back()));
  const auto num_old = static_cast<int>(steps.size()) - keep;
  int num_removed = 0;
  for (int i = 0; i < num_old; ++i) {
    if (spared.count(steps[i]) == 0 && remove_checkpoint(root, steps[i])) ++num_removed;
  }
  sync_directory(root);
  return num_removed;
}

}  // namespace atl::ckpt
