#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "atoll/comm/channel/channel.h"
#include "atoll/comm/channel/shared_state.h"
#include "atoll/comm/group.h"

namespace atl::comm {

/// What a World consists of.
struct WorldState final : SharedState {
  WorldState(std::unique_ptr<Transport> transport, const WorldOptions& the_options);
  ~WorldState() override;

  void fail(Failure what, const Channel& where) noexcept override;

  Channel& first() const { return *channels.front(); }
  bool finished() const;
  void abort(const std::string& why) noexcept;

  bool reports = true;
  bool agreed_to_end = false;  ///< the last agree() failed: no rank needs to be told
  std::unique_ptr<Group> all;
  std::vector<std::string> opened_names;  ///< of channels beside the first; the same on all ranks
  std::mutex channels_mutex;              ///< fail() reads them on any channel's thread
  std::vector<std::unique_ptr<Channel>> channels;  ///< the first has all ranks
};

}  // namespace atl::comm
