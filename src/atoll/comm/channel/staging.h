#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "atoll/comm/collective.h"

namespace atl::comm {

/// Whether a call has tensors that the host cannot reach, as they are a GPU's, and does not leave
/// them as they are, as most calls of one rank do.
bool needs_staging(const Collective& call);

/// Memory of the host in place of a GPU's, for backends that move bytes of the host: a call's
/// tensors are copied to it, moved between ranks, and copied back. Each copy waits for the GPU.
/// Keeps its memory from call to call; it is the host's own, as a world outlives devices.
class Staging {
 public:
  /// The call with tensors of the host, which have what it reads. Valid until the next call.
  const Collective& bring(const Collective& call);
  /// Copies to the GPU what the call has made of those.
  void take_back(const Collective& call);

 private:
  Tensor in_host_memory(std::size_t number, const Tensor& tensor, bool is_read);

  Collective staged_;
  struct Room {
    std::unique_ptr<std::byte[]> data;
    std::size_t bytes = 0;
  };
  std::vector<Room> memory_;  // data, result, what is sent, what is received
};

/// An exchange under way whose tensors of a GPU are staged. All calls are the caller's thread's.
class StagedExchange {
 public:
  bool in_use() const { return in_use_; }
  /// The exchange with tensors of the host, which have what is sent; valid until end().
  const Collective& begin(const Collective& call);
  /// Copies what has come to the GPU, once.
  void take_back();
  void end() noexcept { in_use_ = false; }

 private:
  Staging staging_;
  Collective call_;
  bool in_use_ = false;
  bool is_taken_back_ = false;
};

}  // namespace atl::comm
