#include "atoll/base/files/git_lfs_pointer.h"

#include "atoll/base/error.h"

namespace atl {

void refuse_git_lfs_pointer(const std::filesystem::path& path, std::string_view content) {
  if (!content.starts_with("version https://git-lfs.github.com/spec/")) return;
  throw user_error(
      "{} is a Git LFS pointer, which stands for a file that was not downloaded; get the file "
      "itself: git lfs pull",
      path.string());
}

}  // namespace atl
