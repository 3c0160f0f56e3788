#pragma once

#include <filesystem>
#include <string_view>

namespace atl {

/// Throws Error(kUser) when `content` is what Git keeps in place of a large file where its
/// extension did not get the file itself. read_file() and MappedFile do so.
void refuse_git_lfs_pointer(const std::filesystem::path& path, std::string_view content);

}  // namespace atl
