#include "atoll/wire/pass.h"

#include "atoll/base/check.h"
#include "atoll/wire/secret.h"

namespace atl::wire {

std::string new_pass() {
  const std::string pass = make_nonce();
  ATOLL_CHECK_EQ(pass.size(), kPassDigits);
  return pass;
}

bool is_pass(const std::string& pass, const std::string& shown) {
  return !pass.empty() && is_same(pass, shown);
}

}  // namespace atl::wire
