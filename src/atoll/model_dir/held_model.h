#pragma once

#include <filesystem>
#include <memory>

#include "atoll/base/files/lock.h"
#include "atoll/model_dir/model_path.h"

namespace atl::model_dir {

/// A model directory that stays as long as this lives.
struct HeldModel {
  ModelPath path;
  std::shared_ptr<DirectoryHold> hold;  ///< of a checkpoint; shared with whoever has the path
  std::shared_ptr<DirectoryHold> base_hold = nullptr;  ///< of a base model that is a checkpoint
};

/// As find_model(), for whoever reads it beside the run that writes it, which removes old
/// checkpoints.
HeldModel hold_model(const std::filesystem::path& argument, const std::filesystem::path& base = {});

}  // namespace atl::model_dir
