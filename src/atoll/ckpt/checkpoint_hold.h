#pragma once

// Checkpoints that somebody reads beside the run that writes them, and removes old ones.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "atoll/base/files/lock.h"
#include "atoll/ckpt/checkpoint.h"

namespace atl::ckpt {

/// A checkpoint that stays as long as this lives, whatever the run that wrote it keeps.
struct HeldCheckpoint {
  CheckpointInfo info;
  std::shared_ptr<DirectoryHold> hold;  ///< shared: readers pass it on with the path
};

/// As newest_verified(), of checkpoints that another process may be removing. The hold ends with
/// the process, however it ends.
std::optional<HeldCheckpoint> hold_newest(const std::filesystem::path& root,
                                          ThreadPool* threads = nullptr);

/// Holds one checkpoint; null when it is not there any more.
std::shared_ptr<DirectoryHold> hold_checkpoint(const std::filesystem::path& directory);

/// Removes one checkpoint, unless somebody holds it; whether it is gone. prune_checkpoints()
/// removes so, and a later call of it finds what was held.
bool remove_checkpoint(const std::filesystem::path& root, std::int64_t step);

}  // namespace atl::ckpt
