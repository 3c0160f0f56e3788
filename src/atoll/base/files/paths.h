#pragma once

// Questions about paths. Where std::filesystem's throw an exception of their own, or say "no" of
// what they cannot look at, these throw an Error that names the path: a link to itself, a name that
// is too long, a directory that may not be searched.

#include <filesystem>

namespace atl {

/// Whether there is anything.
bool path_exists(const std::filesystem::path& path);
/// Whether there is a directory, or a link to one.
bool directory_exists(const std::filesystem::path& path);
/// Whether there is a regular file, or a link to one.
bool file_exists(const std::filesystem::path& path);
/// The path without links, absolute; there must be something.
std::filesystem::path real_path(const std::filesystem::path& path);

}  // namespace atl
