#pragma once

#include <vector>

namespace atl::comm::gloo_net {

/// The descriptors that are open now, ascending.
std::vector<int> open_descriptors();

/// Chooses the congestion control reno for those TCP sockets beyond `before` whose two ends are on
/// this host: BBR, which many hosts have as default, paces them at a third of what memory allows.
/// Gloo has no option for it and shows no descriptor.
void speed_up_loopback(const std::vector<int>& before);

}  // namespace atl::comm::gloo_net
