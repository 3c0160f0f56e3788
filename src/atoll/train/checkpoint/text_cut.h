#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "atoll/data/row.h"

namespace atl::train {

/// How a run cut its text into sequences.
struct TextCut {
  std::int64_t context = 0;
  data::Packing packing = data::Packing::kStream;
};

/// The TextCut of the run that wrote a checkpoint; nothing where the directory is not a checkpoint.
/// Throws Error(kDamaged) naming the file when its settings lack a value.
std::optional<TextCut> text_cut_of(const std::filesystem::path& directory);

}  // namespace atl::train
