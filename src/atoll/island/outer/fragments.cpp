#include "atoll/island/outer/fragments.h"

#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/base/error.h"

namespace atl::island {

namespace {

void check_order(std::span<const FlatParam> params) {
  std::int64_t end = 0;
  for (const FlatParam& param : params) {
    ATOLL_CHECK(param.offset >= end && param.elements >= 0 && param.layer >= -1,
                "parameter {}: {} elements at {}, layer {}, after one that ends at {}", param.name,
                param.elements, param.offset, param.layer, end);
    end = param.offset + param.elements;
  }
}

int count_layers(std::span<const FlatParam> params) {
  int layers = 0;
  for (const FlatParam& param : params) layers = std::max(layers, param.layer + 1);
  return layers;
}

// The fragment of each parameter.
std::vector<std::size_t> choose(std::span<const FlatParam> params, std::size_t num_fragments) {
  std::vector<std::int64_t> sizes(num_fragments, 0);
  std::vector<std::size_t> chosen(params.size(), 0);
  for (std::size_t i = 0; i < params.size(); ++i) {
    if (params[i].layer < 0) continue;
    chosen[i] = static_cast<std::size_t>(params[i].layer) % num_fragments;
    sizes[chosen[i]] += params[i].elements;
  }
  for (std::size_t i = 0; i < params.size(); ++i) {
    if (params[i].layer >= 0) continue;
    const auto smallest = std::min_element(sizes.begin(), sizes.end());
    chosen[i] = static_cast<std::size_t>(smallest - sizes.begin());
    *smallest += params[i].elements;
  }
  return chosen;
}

void append(Fragment& fragment, parallel::ElementRange range) {
  if (range.size() == 0) return;
  if (!fragment.ranges.empty() && fragment.ranges.back().end == range.begin) {
    fragment.ranges.back().end = range.end;
  } else {
    fragment.ranges.push_back(range);
  }
}

// fn(begin in flat, begin in packed, elements) for each range.
template <typename Fn>
void for_ranges(const Fragment& fragment, std::size_t flat, std::size_t packed, Fn fn) {
  ATOLL_CHECK(static_cast<std::int64_t>(packed) == fragment.elements(),
              "{} elements for a fragment of {}", packed, fragment.elements());
  std::size_t at = 0;
  for (const parallel::ElementRange& range : fragment.ranges) {
    ATOLL_CHECK(range.begin >= 0 && range.end <= static_cast<std::int64_t>(flat),
                "elements {} to {} of {}", range.begin, range.end, flat);
    const auto count = static_cast<std::size_t>(range.size());
    fn(static_cast<std::size_t>(range.begin), at, count);
    at += count;
  }
}

}  // namespace

std::int64_t Fragment::elements() const {
  return parallel::num_elements(ranges);
}

std::vector<Fragment> make_fragments(std::span<const FlatParam> params, int num_fragments) {
  check_order(params);
  const int layers = count_layers(params);
  if (num_fragments < 1 || (num_fragments > 1 && num_fragments > layers)) {
    throw user_error("{} fragments of a model of {} layers: choose from 1 to {}", num_fragments,
                     layers, std::max(1, layers));
  }
  const auto count = static_cast<std::size_t>(num_fragments);
  const std::vector<std::size_t> chosen = choose(params, count);
  std::vector<Fragment> fragments(count);
  for (std::size_t i = 0; i < params.size(); ++i) {
    append(fragments[chosen[i]], {params[i].offset, params[i].offset + params[i].elements});
  }
  for (std::size_t p = 0; p < count; ++p) {
    if (num_fragments == 1 || !fragments[p].ranges.empty()) continue;
    throw user_error("fragment {} of {} would have no trained parameters: choose fewer fragments",
                     p, num_fragments);
  }
  return fragments;
}

void pack(const Fragment& fragment, std::span<const float> flat, std::span<float> packed) {
  for_ranges(fragment, flat.size(), packed.size(),
             [&](std::size_t from, std::size_t to, std::size_t count) {
               std::copy_n(flat.begin() + static_cast<std::ptrdiff_t>(from), count,
                           packed.begin() + static_cast<std::ptrdiff_t>(to));
             });
}

void unpack(const Fragment& fragment, std::span<const float> packed, std::span<float> flat) {
  for_ranges(fragment, flat.size(), packed.size(),
             [&](std::size_t to, std::size_t from, std::size_t count) {
               std::copy_n(packed.begin() + static_cast<std::ptrdiff_t>(from), count,
                           flat.begin() + static_cast<std::ptrdiff_t>(to));
             });
}

}  // namespace atl::island
