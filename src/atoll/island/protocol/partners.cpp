#include "atoll/island/protocol/partners.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <numeric>
#include <utility>

#include "atoll/base/rng.h"

namespace atl::island {

namespace {

// Names these draws to Philox, "gossip" in ASCII; no seed of a run is in them, and no other draw
// has this key.
constexpr std::array<std::uint32_t, 2> kKey = {0x676F7373, 0x69700000};

std::uint32_t draw(std::int64_t outer_step, std::size_t place) {
  const auto step = static_cast<std::uint64_t>(outer_step);
  return philox({static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(step >> 32),
                 static_cast<std::uint32_t>(place), 0},
                kKey)[0];
}

// The dimension whose turn it is.
std::vector<int> by_hypercube(std::size_t turn, std::size_t count) {
  const auto dimensions = static_cast<std::size_t>(std::countr_zero(count));
  const std::size_t bit = std::size_t{1} << (turn % dimensions);
  std::vector<int> exchanges(count);
  int next = 0;
  for (std::size_t place = 0; place < count; ++place) {
    if ((place & bit) != 0) continue;
    exchanges[place] = exchanges[place | bit] = ++next;
  }
  return exchanges;
}

}  // namespace

std::vector<int> exchanges_of(std::int64_t outer_step, std::span<const IslandId> ready) {
  const std::size_t count = ready.size();
  if (count >= 2 && std::has_single_bit(count)) {
    return by_hypercube(static_cast<std::size_t>(outer_step), count);
  }
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = count; i > 1; --i) {
    std::swap(order[i - 1], order[draw(outer_step, i) % i]);
  }
  std::vector<int> exchanges(count);
  const int last = count < 2 ? 1 : static_cast<int>(count / 2);
  for (std::size_t i = 0; i < count; ++i) {
    exchanges[order[i]] = std::min(last, static_cast<int>(i / 2) + 1);
  }
  return exchanges;
}

}  // namespace atl::island
