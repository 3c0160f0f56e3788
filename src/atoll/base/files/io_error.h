#pragma once

#include <filesystem>

#include "atoll/base/error.h"

namespace atl {

/// The Error for a system call that failed: "<what> <path>: <reason>; <what to do>". Permissions
/// and wrong kinds of path are the user's to mend (kUser), the rest is kIo.
Error io_error(const char* what, const std::filesystem::path& path, int error_number);

}  // namespace atl
