#pragma once

#include <filesystem>
#include <string>

namespace atl::cli {

/// Verifies what `path` holds, byte for byte where there are hashes: a run directory with its
/// checkpoints and tokens (of islands: each one's), one checkpoint, a corpus or a Hugging Face
/// model. Returns what was found, one line
/// each; throws Error(kDamaged) naming the file for damage, Error(kUser) for anything else.
std::string inspect(const std::filesystem::path& path);

/// Its parts, each as inspect() says them.
std::string inspect_checkpoint(const std::filesystem::path& path);
std::string inspect_corpus(const std::filesystem::path& path);

/// Whether `path` is a run's directory, or one of islands.
bool holds_run(const std::filesystem::path& path);
/// A run: what `atoll train` verifies before it goes on.
std::string inspect_run(const std::filesystem::path& run);

}  // namespace atl::cli
