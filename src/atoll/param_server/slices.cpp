#include "atoll/param_server/slices.h"

#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/parallel/layout/flat_layout.h"

namespace atl::param_server {

namespace {

using parallel::kBlockElements;

// The part of `range` within [begin, end), placed in a slice that begins with `begin`.
optim::ParamRange within(const optim::ParamRange& range, std::int64_t begin, std::int64_t end) {
  optim::ParamRange part = range;
  part.begin = std::max(range.begin, begin);
  part.count = std::min(range.begin + range.count, end) - part.begin;
  if (range.counted >= 0) {
    part.counted =
        std::clamp<std::int64_t>(range.begin + range.counted - part.begin, 0, part.count);
  }
  part.matrix = false;
  part.value_begin = part.grad_begin = part.begin - begin;
  return part;
}

}  // namespace

std::vector<Slice> cut_into_slices(std::span<const optim::ParamRange> ranges, std::int64_t total,
                                   std::int64_t slice_elements) {
  ATOLL_CHECK(total > 0, "nothing is trained");
  const std::int64_t wanted = slice_elements > 0
                                  ? slice_elements
                                  : std::clamp(total / kMinSlices / kBlockElements * kBlockElements,
                                               kBlockElements, kMaxSliceElements);
  std::vector<std::int64_t> cuts = {0};
  for (const optim::ParamRange& range : ranges) {
    for (std::int64_t at = 0; at < range.count; at += kBlockElements) {
      const std::int64_t end = range.begin + std::min(at + kBlockElements, range.count);
      if (end - cuts.back() > wanted && range.begin + at > cuts.back()) {
        cuts.push_back(range.begin + at);
      }
    }
  }
  cuts.push_back(total);
  std::vector<Slice> slices;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    Slice slice = {.begin = cuts[i], .count = cuts[i + 1] - cuts[i], .ranges = {}};
    for (const optim::ParamRange& range : ranges) {
      if (range.begin >= cuts[i + 1] || range.begin + range.count <= cuts[i]) continue;
      slice.ranges.push_back(within(range, cuts[i], cuts[i + 1]));
    }
    slices.push_back(std::move(slice));
  }
  return slices;
}

}  // namespace atl::param_server
