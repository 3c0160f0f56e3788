#include "atoll/text/display_width.h"

#include <utf8proc.h>

#include <algorithm>

namespace atl::text {

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  auto left = static_cast<utf8proc_ssize_t>(text.size());
  while (left > 0) {
    utf8proc_int32_t character = 0;
    const utf8proc_ssize_t used = utf8proc_iterate(bytes, left, &character);
    if (used > 0) width += static_cast<std::size_t>(utf8proc_charwidth(character));
    const utf8proc_ssize_t step = std::max<utf8proc_ssize_t>(used, 1);
    bytes += step;
    left -= step;
  }
  return width;
}

}  // namespace atl::text
