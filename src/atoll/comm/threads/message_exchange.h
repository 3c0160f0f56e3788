#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "atoll/comm/threads/endpoint.h"

namespace atl::comm {

/// Messages that some pairs of ranks send each other at the same time. A message stays in the
/// sender's memory until the receiver has copied it.
class MessageExchange {
 public:
  explicit MessageExchange(Endpoint& endpoint)
      : endpoint_(endpoint), is_late_(static_cast<std::size_t>(endpoint.channel().size())) {}

  /// Forgets what a failed call has left.
  void clear();

  void send(int to, const void* data, std::size_t bytes, std::optional<Spec> spec = {});
  void receive(int from, void* data, std::size_t bytes, std::optional<Spec> spec = {});
  /// Returns when all of them have been copied. Throws PeerError when one is not as it should be,
  /// or what Endpoint::wait_for does.
  void move();

 private:
  struct PendingSend {
    int to = 0;
    std::uint64_t number = 0;  ///< taken once the queue counts as many
  };
  struct PendingReceive {
    int from = 0;
    void* data = nullptr;
    std::size_t bytes = 0;
    std::optional<Spec> spec;
  };

  /// Copies what has come; a rank that has still to send or to take, or -1.
  int make_progress();
  bool take(const PendingReceive& pending);
  void check_not_in_collective(int rank);

  Endpoint& endpoint_;
  std::vector<PendingSend> sends_;
  std::vector<PendingReceive> receives_;
  std::vector<char> is_late_;  // by rank: its first message has not come
};

}  // namespace atl::comm
