#include "atoll/parallel/layout/gather_text.h"

#include <algorithm>
#include <cstdint>

namespace atl::parallel {

std::vector<std::string> gather_text(comm::Group* group, std::string_view mine) {
  if (group == nullptr || group->size() == 1) return {std::string(mine)};
  const auto size = static_cast<std::size_t>(group->size());
  const auto rank = static_cast<std::size_t>(group->rank());
  std::vector<std::int64_t> lengths(size);
  lengths[rank] = static_cast<std::int64_t>(mine.size());
  std::vector<std::int64_t> parts;
  for (std::size_t r = 0; r <= size; ++r) parts.push_back(static_cast<std::int64_t>(r));
  group->all_gather({lengths.data(), {Dtype::kI64, {parts.back()}}}, parts);

  for (std::size_t r = 0; r < size; ++r) parts[r + 1] = parts[r] + lengths[r];
  std::string all(static_cast<std::size_t>(parts.back()), '\0');
  std::copy(mine.begin(), mine.end(), all.begin() + parts[rank]);
  if (!all.empty()) group->all_gather({all.data(), {Dtype::kU8, {parts.back()}}}, parts);
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < size; ++r) {
    texts.push_back(
        all.substr(static_cast<std::size_t>(parts[r]), static_cast<std::size_t>(lengths[r])));
  }
  return texts;
}

}  // namespace atl::parallel
