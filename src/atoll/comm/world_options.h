#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "atoll/comm/collective.h"

namespace atl::comm {

/// How bytes go in a collective; docs/collectives.md. It changes no bit.
enum class Algorithm : std::uint8_t {
  kDirect,        ///< each rank to each other
  kRing,          ///< each rank to its two neighbours in rank order
  kHierarchical,  ///< within hosts, and between neighbouring hosts
  kAuto,          ///< the fastest of them, measured in the first calls of each size
};
/// "direct", "ring", "hierarchical", "auto".
const char* algorithm_name(Algorithm algorithm);
/// Throws Error(kUser) for another name.
Algorithm algorithm_named(std::string_view name);

/// What a World is opened with, beside its backend.
struct WorldOptions {
  /// A collective that is not done after so long ends with an error that names who was missing.
  double timeout_s = 300;
  /// Ranks on this rank's host, this one among them; 0: all of them.
  int local_ranks = 0;
  Algorithm algorithm = Algorithm::kDirect;
  /// For tests of what each call is there for: one that this says true of is not made on this rank,
  /// and its tensors stay as they are. Empty: all are made.
  std::function<bool(const Collective& call)> leaves_out = {};
};

}  // namespace atl::comm
