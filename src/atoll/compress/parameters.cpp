#include "atoll/compress/parameters.h"

#include <charconv>

namespace atl::compress {

std::optional<int> whole_number(std::string_view text, int low, int high) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end || value < low || value > high) {
    return std::nullopt;
  }
  return value;
}

}  // namespace atl::compress
