#include "atoll/tensor/arena.h"

#include <algorithm>
#include <numeric>

#include "atoll/base/check.h"

namespace atl {

namespace {

bool share_a_tick(const Placement& a, const Placement& b) {
  return a.first_tick <= b.last_tick && b.first_tick <= a.last_tick;
}

// The lowest offset at which `wanted` overlaps none of `placed` (all alive with it, by offset).
std::size_t lowest_gap(const std::vector<const Placement*>& placed, std::size_t bytes) {
  std::size_t offset = 0;
  for (const Placement* other : placed) {
    if (other->offset >= offset + bytes) break;
    offset = std::max(offset, other->offset + other->bytes);
  }
  return offset;
}

}  // namespace

int MemoryPlan::request(std::string name, std::string group, std::size_t bytes,
                        std::int64_t first_tick, std::int64_t last_tick) {
  ATOLL_CHECK(first_tick <= last_tick, "{} lives from {} to {}", name, first_tick, last_tick);
  placements_.push_back(
      {std::move(name), std::move(group), align_up(bytes), first_tick, last_tick, 0});
  return static_cast<int>(placements_.size()) - 1;
}

void MemoryPlan::place() {
  std::vector<std::size_t> order(placements_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return placements_[a].bytes > placements_[b].bytes;
  });
  total_bytes_ = 0;
  std::vector<const Placement*> placed;  // sorted by offset
  for (const std::size_t index : order) {
    Placement& wanted = placements_[index];
    std::vector<const Placement*> alive;
    std::copy_if(placed.begin(), placed.end(), std::back_inserter(alive),
                 [&](const Placement* other) { return share_a_tick(*other, wanted); });
    wanted.offset = lowest_gap(alive, wanted.bytes);
    total_bytes_ = std::max(total_bytes_, wanted.offset + wanted.bytes);
    placed.insert(std::upper_bound(
                      placed.begin(), placed.end(), &wanted,
                      [](const Placement* a, const Placement* b) { return a->offset < b->offset; }),
                  &wanted);
  }
}

std::size_t MemoryPlan::peak_bytes(const std::string& group) const {
  std::size_t peak = 0;
  for (const Placement& at : placements_) {  // the worst tick is some request's first
    if (at.group != group) continue;
    std::size_t live = 0;
    for (const Placement& other : placements_) {
      const bool alive = other.first_tick <= at.first_tick && at.first_tick <= other.last_tick;
      if (other.group == group && alive) live += other.bytes;
    }
    peak = std::max(peak, live);
  }
  return peak;
}

Tensor tensor_in(const Buffer& buffer, Spec spec) {
  ATOLL_CHECK(spec.bytes() <= buffer.bytes(), "{} does not fit {} bytes", spec.to_string(),
              buffer.bytes());
  return {buffer.data(), spec, buffer.kind() == MemoryKind::kHost ? nullptr : buffer.device()};
}

Arena::Arena(Device& device, const MemoryPlan& plan)
    : placements_(plan.placements()), buffer_(device, plan.total_bytes()) {}

Tensor Arena::tensor(int number, Spec spec) const {
  const Placement& placement = placements_.at(static_cast<std::size_t>(number));
  ATOLL_CHECK(spec.bytes() <= placement.bytes, "{} does not fit {} bytes of {}", spec.to_string(),
              placement.bytes, placement.name);
  return {data(number), spec, buffer_.device()};
}

std::byte* Arena::data(int number) const {
  return static_cast<std::byte*>(buffer_.data()) +
         placements_.at(static_cast<std::size_t>(number)).offset;
}

}  // namespace atl
