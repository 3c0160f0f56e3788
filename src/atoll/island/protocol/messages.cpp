#include "atoll/island/protocol/messages.h"

#include <iterator>

namespace atl::island {

std::string_view name_of(const FromIsland& body) {
  constexpr std::string_view kNames[] = {"join",          "synced",   "heartbeat", "ready",
                                         "reduce failed", "prepared", "leave"};
  static_assert(std::size(kNames) == std::variant_size_v<FromIsland>);
  return kNames[body.index()];
}

std::string_view name_of(const ToIsland& body) {
  constexpr std::string_view kNames[] = {"welcome",        "refused", "lease",    "reduce",
                                         "abandon reduce", "commit",  "dropped",  "resync",
                                         "view",           "finish",  "put state"};
  static_assert(std::size(kNames) == std::variant_size_v<ToIsland>);
  return kNames[body.index()];
}

}  // namespace atl::island
