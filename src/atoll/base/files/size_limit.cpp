#include "atoll/base/files/size_limit.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include "atoll/base/quantity.h"

namespace atl {

std::string size_limit_advice() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return "; this file system takes no larger files, choose another directory";
  }
  return fmt::format(
      "; a file may have at most {} bytes here, by a limit of the shell or of the scheduler: raise "
      "it with `ulimit -f unlimited`",
      format_count(static_cast<std::int64_t>(limit.rlim_cur)));
}

}  // namespace atl
