#include "atoll/tensor/arena.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <span>

#include "atoll/base/check.h"

namespace atl {

namespace {

std::span<const TickSpan> spans_of(const Placement& at, TickSpan& whole) {
  if (!at.spans.empty()) return at.spans;
  whole = {at.first_tick, at.last_tick};
  return {&whole, 1};
}

bool share_a_tick(const Placement& a, const Placement& b) {
  if (a.first_tick > b.last_tick || b.first_tick > a.last_tick) return false;
  if (a.spans.empty() && b.spans.empty()) return true;
  TickSpan whole_a, whole_b;
  const auto left = spans_of(a, whole_a), right = spans_of(b, whole_b);
  std::size_t i = 0, k = 0;
  while (i < left.size() && k < right.size()) {
    if (left[i].last < right[k].first) {
      ++i;
    } else if (right[k].last < left[i].first) {
      ++k;
    } else {
      return true;
    }
  }
  return false;
}

// What is looked at of a placement for each that comes after it: together, since models of many
// layers have tens of thousands.
struct Placed {
  std::size_t offset, end;
  std::int64_t first_tick, last_tick;
  const Placement* placement;
  bool has_spans;
};

// The lowest offset at which `wanted` overlaps none of `placed` (by offset) that live with it.
std::size_t lowest_gap(const std::vector<Placed>& placed, const Placement& wanted) {
  std::size_t offset = 0;
  for (const Placed& other : placed) {
    if (other.end <= offset) continue;
    if (other.first_tick > wanted.last_tick || wanted.first_tick > other.last_tick) continue;
    if ((other.has_spans || !wanted.spans.empty()) && !share_a_tick(*other.placement, wanted))
      continue;
    if (other.offset >= offset + wanted.bytes) break;
    offset = other.end;
  }
  return offset;
}

template <typename Counts>
std::size_t peak_bytes_of(const std::vector<Placement>& placements, const Counts& counts) {
  std::map<std::int64_t, std::int64_t> changes;  // of the bytes that live, by tick
  for (const Placement& at : placements) {
    if (!counts(at)) continue;
    TickSpan whole;
    for (const TickSpan& span : spans_of(at, whole)) {
      changes[span.first] += static_cast<std::int64_t>(at.bytes);
      if (span.last == MemoryPlan::kForever) continue;
      changes[span.last + 1] -= static_cast<std::int64_t>(at.bytes);
    }
  }
  std::int64_t live = 0, peak = 0;
  for (const auto& [tick, change] : changes) peak = std::max(peak, live += change);
  return static_cast<std::size_t>(peak);
}

}  // namespace

int MemoryPlan::request(std::string name, std::string group, std::size_t bytes,
                        std::int64_t first_tick, std::int64_t last_tick) {
  ATOLL_CHECK(first_tick <= last_tick, "{} lives from {} to {}", name, first_tick, last_tick);
  placements_.push_back(
      {std::move(name), std::move(group), align_up(bytes), first_tick, last_tick, 0});
  return static_cast<int>(placements_.size()) - 1;
}

int MemoryPlan::request(std::string name, std::string group, std::size_t bytes,
                        std::vector<TickSpan> spans) {
  ATOLL_CHECK(!spans.empty(), "{} never lives", name);
  for (std::size_t i = 0; i < spans.size(); ++i) {
    ATOLL_CHECK(spans[i].first <= spans[i].last && (i == 0 || spans[i - 1].last < spans[i].first),
                "{} lives from {} to {}", name, spans[i].first, spans[i].last);
  }
  const int number =
      request(std::move(name), std::move(group), bytes, spans.front().first, spans.back().last);
  if (spans.size() > 1) placements_.back().spans = std::move(spans);
  return number;
}

void MemoryPlan::place() {
  std::vector<std::size_t> order(placements_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return placements_[a].bytes > placements_[b].bytes;
  });
  total_bytes_ = 0;
  std::vector<Placed> placed;  // sorted by offset
  placed.reserve(placements_.size());
  for (const std::size_t index : order) {
    Placement& wanted = placements_[index];
    wanted.offset = lowest_gap(placed, wanted);
    const Placed now = {.offset = wanted.offset,
                        .end = wanted.offset + wanted.bytes,
                        .first_tick = wanted.first_tick,
                        .last_tick = wanted.last_tick,
                        .placement = &wanted,
                        .has_spans = !wanted.spans.empty()};
    total_bytes_ = std::max(total_bytes_, now.end);
    const auto at =
        std::upper_bound(placed.begin(), placed.end(), now,
                         [](const Placed& a, const Placed& b) { return a.offset < b.offset; });
    placed.insert(at, now);
  }
}

std::size_t MemoryPlan::peak_bytes(const std::string& group) const {
  return peak_bytes_of(placements_, [&](const Placement& at) { return at.group == group; });
}

std::size_t MemoryPlan::peak_bytes() const {
  return peak_bytes_of(placements_, [](const Placement&) { return true; });
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
