#pragma once

// Moving finished files and directories into place. The callers fsync the parent directory.

#include <filesystem>

namespace atl {

/// rename(2): a file replaces what stands at `to`, a directory only an empty one. Throws Error.
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);

/// Swaps what two existing paths name, in one atomic step. Returns false, having done nothing,
/// where the file system has no such operation (NFS, 9p); throws Error for all other failures.
bool exchange_paths(const std::filesystem::path& a, const std::filesystem::path& b);

/// fsyncs a file that is not open. Throws Error.
void sync_file(const std::filesystem::path& path);

}  // namespace atl
