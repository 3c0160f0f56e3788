#include "atoll/param_server/pauses.h"

#include <algorithm>
#include <utility>

namespace atl::param_server {

bool Pauses::opened(ServerId server, Time now) {
  constexpr int kMostDoublings = 10;
  Link& link = links_[server];
  link.is_open = true;
  link.is_waiting = link.silences > 0;
  if (link.is_waiting) {
    const auto pause = kFirst * (1 << std::min(link.silences - 1, kMostDoublings));
    link.until = now + std::min<std::chrono::milliseconds>(pause, kLast);
  }
  ++link.silences;
  return !link.is_waiting;
}

int Pauses::closed(ServerId server) {
  Link& link = links_[server];
  link.is_waiting = false;
  return std::exchange(link.is_open, false) ? link.silences : 0;
}

std::vector<ServerId> Pauses::due(Time now) {
  std::vector<ServerId> servers;
  for (auto& [server, link] : links_) {
    if (!link.is_waiting || now < link.until) continue;
    link.is_waiting = false;
    servers.push_back(server);
  }
  return servers;
}

}  // namespace atl::param_server
