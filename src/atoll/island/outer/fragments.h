#pragma once

// Which parameters are exchanged together.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "atoll/parallel/layout/element_range.h"

namespace atl::island {

/// A parameter in the flat vector (parallel::FlatLayout).
struct FlatParam {
  std::string name;
  std::int64_t offset = 0;
  std::int64_t elements = 0;
  int layer = -1;  ///< of the model, from 0; -1: of none (embeddings, last norm, head)
};

/// Parameters that are exchanged together. Packed, they lie one range after the other.
struct Fragment {
  std::vector<parallel::ElementRange> ranges;  ///< ascending, not touching each other
  std::int64_t elements() const;
};

/// Cuts a model into fragments: each element of each parameter is in one of them, padding between
/// parameters in none. Layer l belongs to fragment l mod num_fragments (arXiv 2501.18512,
/// "strided"), so that each has early and late layers. What is of no layer goes, in the order of
/// the flat vector, to the fragment that has the fewest elements by then (the first of several):
/// links are used evenly only if fragments are about as large. `params` are in order and do not
/// overlap. Throws Error(kUser) when there are fewer layers than fragments, or none of a fragment's
/// parameters is trained; one fragment is always possible.
std::vector<Fragment> make_fragments(std::span<const FlatParam> params, int num_fragments);

/// packed = the fragment's elements of `flat`.
void pack(const Fragment& fragment, std::span<const float> flat, std::span<float> packed);
/// The other way; the rest of `flat` stays.
void unpack(const Fragment& fragment, std::span<const float> packed, std::span<float> flat);

}  // namespace atl::island
