#include "atoll/comm/world_options.h"

#include <utility>

#include "atoll/base/error.h"

namespace atl::comm {

namespace {

constexpr std::pair<const char*, Algorithm> kNames[] = {
    {"direct", Algorithm::kDirect},
    {"ring", Algorithm::kRing},
    {"hierarchical", Algorithm::kHierarchical},
    {"auto", Algorithm::kAuto},
};

}  // namespace

const char* algorithm_name(Algorithm algorithm) {
  for (const auto& [name, value] : kNames)
    if (value == algorithm) return name;
  return "unknown";
}

Algorithm algorithm_named(std::string_view name) {
  for (const auto& [known, value] : kNames)
    if (name == known) return value;
  throw user_error(
      "no algorithm of collectives is called {}; there are direct, ring, hierarchical "
      "and auto",
      name);
}

}  // namespace atl::comm
