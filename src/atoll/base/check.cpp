#include "atoll/base/check.h"

namespace atl::internal {

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  throw Error(ErrorKind::kInternal,
              fmt::format("{}:{}: check failed: {}{}{} (this is a bug in atoll; please report it)",
                          file, line, condition, message.empty() ? "" : ": ", message));
}

}  // namespace atl::internal
