#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "atoll/ckpt/checkpoint.h"

namespace atl::ckpt {

/// newest_verified() among those that `takes` takes: whether the directory is still there for the
/// caller.
std::optional<CheckpointInfo> newest_of(
    const std::filesystem::path& root, ThreadPool* threads,
    const std::function<bool(const std::filesystem::path&)>& takes);

}  // namespace atl::ckpt
