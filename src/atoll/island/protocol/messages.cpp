#include "atoll/island/protocol/messages.h"

#include <iterator>

#include "atoll/base/error.h"
#include "atoll/island/protocol/messages_check.h"

namespace atl::island {

void check_island_name(std::string_view name) {
  if (is_island_name(std::string(name))) return;
  throw user_error(
      "\"{}\" cannot be an island's name; give 1 to {} letters, digits, dots, dashes and "
      "underscores",
      name.substr(0, kMaxName), kMaxName);
}

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
