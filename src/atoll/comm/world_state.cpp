#include "atoll/comm/world_state.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace atl::comm {

WorldState::WorldState(std::unique_ptr<Transport> transport, const WorldOptions& the_options) {
  options = the_options;
  rank = transport->rank();
  size = transport->size();
  std::vector<int> members(static_cast<std::size_t>(transport->size()));
  std::iota(members.begin(), members.end(), 0);
  channels.push_back(
      std::make_unique<Channel>(*this, std::string(), std::move(members), std::move(transport)));
}

// A failing channel reads the list of channels, so all threads end before any channel is destroyed.
WorldState::~WorldState() {
  for (const auto& channel : channels) channel->stop();
  while (!channels.empty()) channels.pop_back();  // the first transport outlives the others
}

void WorldState::fail(Failure what, const Channel& where) noexcept {
  {
    const std::lock_guard lock(mutex);
    if (failure) return;
    failure = std::move(what);
    is_broken.store(true, std::memory_order_release);
  }
  // Nobody changes it any more.
  const std::lock_guard lock(channels_mutex);
  for (const auto& channel : channels) {
    Transport* transport = channel.get() == &where ? nullptr : channel->transport();
    if (transport == nullptr) continue;
    channel->abort_gpu_links();
    failure->peer_error ? transport->give_up(failure->rank, failure->message)
                        : transport->abort(failure->message);
  }
}

bool WorldState::finished() const {
  return std::all_of(channels.begin(), channels.end(),
                     [](const auto& channel) { return channel->finished(); });
}

void WorldState::abort(const std::string& why) noexcept {
  const std::lock_guard lock(channels_mutex);
  for (const auto& channel : channels) {
    channel->abort_gpu_links();
    if (Transport* transport = channel->transport()) transport->abort(why);
  }
}

}  // namespace atl::comm
