#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "atoll/island/client/recent_senders.h"
#include "atoll/island/coordinator/roster.h"
#include "atoll/island/protocol/protocol.h"
#include "atoll/wire/blobs.h"

namespace atl::island {

/// An island's pseudo-gradient, as it is sent.
struct RelayOffer {
  IslandId island = kNobody;
  std::uint64_t bytes = 0;
  std::uint64_t chunk_bytes = 0;
};

/// What passes through the coordinator's memory, because islands cannot reach each other:
/// pseudo-gradients of a star, and state for one that comes late. One island puts it and others
/// fetch it, chunk by chunk as they come. Whoever has joined may fetch; what is an island's, that
/// island alone may put. For one thread; transfers have their own.
class BlobRelay {
 public:
  /// `roster`, which must outlive this, says who calls.
  explicit BlobRelay(const Roster& roster);
  ~BlobRelay();
  BlobRelay(const BlobRelay&) = delete;
  BlobRelay& operator=(const BlobRelay&) = delete;

  /// What the server is to give and take.
  wire::BlobStore& store() { return store_; }

  /// Makes room for the pseudo-gradients of an attempt; those of the one before are dropped.
  void serve(const Stamp& stamp, const std::vector<RelayOffer>& offers);
  /// Makes room for a state whose fragments have these `sizes` in bytes; what is not of it is
  /// dropped. Gives what is still to be put of it, by `putter` alone; none: nothing, or it does not
  /// fit the memory.
  std::optional<PutState> serve(const std::vector<std::uint64_t>& sizes, const PutState& put,
                                IslandId putter);
  /// Whose pseudo-gradients have come since the last call, in part at least.
  std::vector<IslandId> heard() { return heard_.take(); }
  /// Due now and then: drops state once nobody has been fetching it for a while.
  void tick(bool is_anybody_fetching);

 private:
  struct Blob;

  bool open(const std::string& key, const std::shared_ptr<Blob>& blob, IslandId putter,
            bool is_heard);
  void publish(const std::string& key, const std::shared_ptr<Blob>& blob, IslandId putter,
               bool is_heard);
  void close(const std::string& key);
  bool fits(const std::vector<std::uint64_t>& sizes, const char* what, const char* and_so);

  RecentSenders heard_;
  wire::BlobStore store_;
  std::set<std::string> deltas_;  // keys, of this outer step and attempt:
  std::pair<std::int64_t, std::uint32_t> deltas_for_ = {-1, 0};
  std::map<std::string, std::shared_ptr<Blob>> states_;  // by key, of the newest state
  std::chrono::steady_clock::time_point states_stay_until_;
  bool is_told_of_memory_ = false;
};

}  // namespace atl::island
