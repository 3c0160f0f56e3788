#pragma once

#include <fmt/format.h>

#include <memory>
#include <span>
#include <string>

#include "atoll/comm/transport.h"

namespace atl::comm {

/// A transport between hosts whose exchange can be posted and looked after while bytes move through
/// windows of shared memory at the same time.
class Network : public Transport {
 public:
  /// Starts an exchange and returns at once; one at a time. The memory must stay as it is until
  /// finish() has returned.
  virtual void post(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) = 0;
  /// Does what can be done now without waiting. Throws PeerError as exchange() does.
  virtual void progress() = 0;
  /// Returns when what was posted is done.
  virtual void finish() = 0;
  /// Says to all ranks, as far as they can be reached, that `why` happened to `rank` and that there
  /// will be no orderly end. May be called while another thread is in finish(), which then throws.
  void give_up(int rank, const std::string& why) noexcept override = 0;
  /// As open_channel().
  virtual std::unique_ptr<Network> open_network(int number, std::span<const int> members) = 0;

  std::unique_ptr<Transport> open_channel(int number, std::span<const int> members) final {
    return open_network(number, members);
  }
  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) final {
    post(outgoing, incoming);
    finish();
  }
  void abort(const std::string& why) noexcept final {
    give_up(rank(), fmt::format("rank {} ended with an error: {}", rank(), why));
  }
};

}  // namespace atl::comm
