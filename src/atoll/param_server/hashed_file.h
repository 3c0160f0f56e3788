#pragma once

#include <filesystem>
#include <string>

#include "atoll/base/files/file.h"

namespace atl::param_server {

/// Makes a directory where it is missing. Throws Error(kIo).
void make_directory(const std::filesystem::path& dir);

/// Writes `content` with its hash before it; the file is there whole or not at all. Throws
/// Error(kIo).
void write_hashed(const std::filesystem::path& path, const std::string& content);
/// Throws Error(kDamaged) naming the file when it is not what was written.
std::string read_hashed(const std::filesystem::path& path);

}  // namespace atl::param_server
