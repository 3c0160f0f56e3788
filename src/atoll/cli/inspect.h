#pragma once

#include <filesystem>
#include <string>

namespace atl::cli {

/// Verifies what `path` holds, byte for byte where there are hashes: a run directory with its
/// checkpoints, one checkpoint, a corpus or a Hugging Face model. Returns what was found, one line
/// each; throws Error(kDamaged) naming the file for damage, Error(kUser) for anything else.
std::string inspect(const std::filesystem::path& path);

}  // namespace atl::cli
