#include "atoll/data/token_source.h"

#include <algorithm>

#include "atoll/base/check.h"

namespace atl::data {

void TokenVector::copy(std::int64_t begin, std::span<std::int32_t> out) const {
  const auto size = static_cast<std::int64_t>(out.size());
  ATOLL_CHECK(0 <= begin && begin <= num_tokens() - size, "tokens {} to {} of {} in {}", begin,
              begin + size, num_tokens(), name_);
  std::copy_n(tokens_.begin() + begin, size, out.begin());
}

}  // namespace atl::data
