#include "atoll/base/files/lfs_pointer.h"

#include "atoll/base/error.h"

namespace atl {

void refuse_lfs_pointer(std::string_view content, std::string_view origin) {
  if (!content.starts_with("version https://git-lfs.github.com/spec/v1")) return;
  throw user_error(
      "{} is a Git LFS pointer: the clone has a note in the place of the file; fetch the file with "
      "`git lfs install` and `git lfs pull` in the clone",
      origin);
}

}  // namespace atl
