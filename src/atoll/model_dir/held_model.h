#pragma once

#include <filesystem>
#include <memory>

#include "atoll/base/files/lock.h"

namespace atl::model_dir {

/// A model directory that stays as long as this lives.
struct HeldModel {
  std::filesystem::path path;
  std::shared_ptr<DirectoryHold> hold;  ///< of a checkpoint; shared with whoever has the path
};

/// As find_model(), for whoever reads it beside the run that writes it, which removes old
/// checkpoints.
HeldModel hold_model(const std::filesystem::path& argument);

}  // namespace atl::model_dir
