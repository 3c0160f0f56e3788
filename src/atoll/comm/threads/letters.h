#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "atoll/comm/threads/presence.h"

namespace atl::comm {

/// Pieces that some pairs of ranks send each other at the same time. A letter stays in the sender's
/// memory until the receiver has copied it.
class Letters {
 public:
  explicit Letters(Presence& presence)
      : presence_(presence), is_late_(static_cast<std::size_t>(presence.hub().size())) {}

  /// Forgets what a failed call has left.
  void clear();

  void send(int to, const void* data, std::size_t bytes, std::optional<Spec> spec = {});
  void receive(int from, void* data, std::size_t bytes, std::optional<Spec> spec = {});
  /// Returns when all of them have been copied. Throws PeerError when one is not as it should be,
  /// or what Presence::wait_for does.
  void move();

 private:
  struct Sent {
    int to = 0;
    std::uint64_t number = 0;  ///< taken once the mailbox counts as many
  };
  struct Awaited {
    int from = 0;
    void* data = nullptr;
    std::size_t bytes = 0;
    std::optional<Spec> spec;
  };

  /// Copies what has come; a rank that has still to send or to take, or -1.
  int make_progress();
  bool take(const Awaited& awaited);
  void check_not_in_collective(int rank);

  Presence& presence_;
  std::vector<Sent> sent_;
  std::vector<Awaited> awaited_;
  std::vector<char> is_late_;  // by rank: its first letter has not come
};

}  // namespace atl::comm
