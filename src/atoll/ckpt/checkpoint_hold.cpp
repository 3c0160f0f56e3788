#include "atoll/ckpt/checkpoint_hold.h"

#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/base/paths.h"
#include "atoll/base/rename.h"
#include "atoll/ckpt/checkpoint_newest.h"
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

std::optional<HeldCheckpoint> hold_newest(const fs::path& root, ThreadPool* threads) {
  std::shared_ptr<DirectoryHold> hold;
  auto info = newest_of(root, threads, [&](const fs::path& directory) {
    hold = hold_checkpoint(directory);
    return hold != nullptr;
  });
  if (!info) return std::nullopt;
  return HeldCheckpoint{std::move(*info), std::move(hold)};
}

bool remove_checkpoint(const fs::path& root, std::int64_t step) {
  const fs::path path = root / checkpoint_name(step);
  std::optional<DirectoryLock> lock;
  try {
    lock.emplace(path, "");
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kUser) return !path_exists(path);
    // There are no locks on this file system, and no holds.
  }
  // Renamed first: a crash while its files go must not leave half a checkpoint under its name.
  const fs::path doomed = root / stale_name(kTemporaryPrefix, step);
  fs::remove_all(doomed);
  rename_path(path, doomed);
  std::error_code error;
  fs::remove_all(doomed, error);
  if (error) log::warning("cannot remove {}: {}", doomed.string(), error.message());
  return true;
}

std::shared_ptr<DirectoryHold> hold_checkpoint(const fs::path& directory) {
  try {
    auto hold = std::make_shared<DirectoryHold>(directory);
    // Another process may have removed it while this one waited.
    return hold->is(directory) ? hold : nullptr;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kUser || path_exists(directory)) throw;
    return nullptr;
  }
}

}  // namespace atl::ckpt
