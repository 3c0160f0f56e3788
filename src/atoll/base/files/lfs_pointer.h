#pragma once

#include <string_view>

namespace atl {

/// Throws Error(kUser) when a file's content is what Git LFS leaves in a large file's place in a
/// clone that did not fetch it, with the command that does. `origin` is the file's path.
void refuse_lfs_pointer(std::string_view content, std::string_view origin);

}  // namespace atl
