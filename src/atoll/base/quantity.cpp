#include "atoll/base/quantity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace atl {

namespace {

std::string plural_of(std::string_view noun) {
  constexpr std::array<std::string_view, 4> kHissing = {"s", "x", "ch", "sh"};
  const bool hisses =
      std::ranges::any_of(kHissing, [&](std::string_view end) { return noun.ends_with(end); });
  return fmt::format("{}{}", noun, hisses ? "es" : "s");
}

}  // namespace

std::string format_count(std::int64_t count) {
  std::string digits = std::to_string(count);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > (count < 0 ? 1 : 0);
       at -= 3) {
    digits.insert(static_cast<std::size_t>(at), 1, ',');
  }
  return digits;
}

std::string counted(std::int64_t count, std::string_view noun, std::string_view plural) {
  if (count == 1) return fmt::format("1 {}", noun);
  return fmt::format("{} {}", format_count(count),
                     plural.empty() ? plural_of(noun) : std::string(plural));
}

std::string format_bytes(std::uint64_t bytes) {
  static constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto value = static_cast<double>(bytes);
  int unit = 0;
  // 1023.95 would print as 1024.0.
  while (value >= 1023.95) {
    value /= 1024;
    ++unit;
  }
  if (unit > 0) return fmt::format("{:.1f} {}", value, kUnits[unit]);
  return fmt::format("{} byte{}", bytes, bytes == 1 ? "" : "s");
}

}  // namespace atl
