#pragma once

#include <filesystem>
#include <string>

namespace atl::wire {

/// The content of a private key's file. Another's private key is another's identity: as ssh does,
/// this refuses (Error(kUser)) a file that others than its owner may read or change.
std::string read_secret(const std::filesystem::path& path);

}  // namespace atl::wire
