#include "atoll/cli/build.h"

namespace atl::cli {

Build this_build() {
  return {ATOLL_BUILD_TYPE, ATOLL_SANITIZERS, ATOLL_COMPILER};
}

}  // namespace atl::cli
