#include "atoll/wire/access_token.h"

#include "atoll/base/check.h"
#include "atoll/wire/secret.h"

namespace atl::wire {

std::string new_access_token() {
  std::string token = make_nonce();
  ATOLL_CHECK_EQ(token.size(), kAccessTokenDigits);
  return token;
}

bool is_access_token(const std::string& token, const std::string& shown) {
  return !token.empty() && is_same(token, shown);
}

}  // namespace atl::wire
