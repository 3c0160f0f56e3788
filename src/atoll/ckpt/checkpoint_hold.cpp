#include "atoll/ckpt/checkpoint_hold.h"

#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/files/rename.h"
#include "atoll/base/log.h"
#include "atoll/ckpt/checkpoint_newest.h"
#include "atoll/ckpt/checkpoint_paths.h"

namespace atl::ckpt {

namespace fs = std::filesystem;

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
