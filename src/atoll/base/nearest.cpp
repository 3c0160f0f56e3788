#include "atoll/base/nearest.h"

#include <algorithm>
#include <vector>

namespace atl {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  const std::size_t width = b.size() + 1;
  std::vector<std::size_t> table((a.size() + 1) * width);
  const auto at = [&](std::size_t i, std::size_t j) -> std::size_t& {
    return table[i * width + j];
  };
  for (std::size_t i = 0; i <= a.size(); ++i) at(i, 0) = i;
  for (std::size_t j = 0; j <= b.size(); ++j) at(0, j) = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = at(i - 1, j - 1) + (a[i - 1] == b[j - 1] ? 0 : 1);
      at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
      }
    }
  }
  return table.back();
}

std::string nearest_name(std::string_view typed, std::span<const std::string> names) {
  // Nobody mistypes a hundred characters, and the table grows with the product of the lengths.
  constexpr std::size_t kLongestName = 100;
  if (typed.size() > kLongestName) return "";
  const auto last_part = [](std::string_view name) { return name.substr(name.rfind('.') + 1); };
  const std::string* best = nullptr;
  std::size_t best_distance = std::max<std::size_t>(2, typed.size() / 3) + 1;
  for (const std::string& name : names) {
    std::size_t distance = edit_distance(typed, name);
    if (last_part(typed) == last_part(name)) distance = std::min<std::size_t>(distance, 2);
    if (distance < best_distance) {
      best = &name;
      best_distance = distance;
    }
  }
  return best == nullptr ? "" : *best;
}

}  // namespace atl
