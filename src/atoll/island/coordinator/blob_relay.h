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
#include "atoll/wire/blob_store.h"

namespace atl::island {

/// An island's pseudo-gradient, as it is sent.
struct RelayOffer {
  IslandId island = kNobody;
  std::uint64_t bytes = 0;
  std::uint64_t chunk_bytes = 0;
};

/// Relays blobs through the coordinator's memory when islands cannot reach each other: the
/// pseudo-gradients of a star, and state for an island that comes late. One island puts a blob and
/// others fetch it, chunk by chunk as they come. All islands that have joined may fetch; only the
/// island that a blob belongs to may put it. For one thread; transfers have their own.
class BlobRelay {
 public:
  /// `roster`, which must outlive this, authenticates callers.
  explicit BlobRelay(const Roster& roster);
  ~BlobRelay();
  BlobRelay(const BlobRelay&) = delete;
  BlobRelay& operator=(const BlobRelay&) = delete;

  /// The blobs, for the coordinator's server.
  wire::BlobStore& store() { return store_; }

  /// Allocates the pseudo-gradients of an attempt; those of earlier attempts are dropped.
  void serve(const Stamp& stamp, const std::vector<RelayOffer>& offers);
  /// Allocates a state whose fragments have these `sizes` in bytes; other states are dropped.
  /// Returns the fragments that `putter`, and no other island, still has to put; nothing: none is
  /// missing, or they do not fit the memory.
  std::optional<PutState> serve(const std::vector<std::uint64_t>& sizes, const PutState& put,
                                IslandId putter);
  /// The islands of which bytes of a pseudo-gradient have come since the last call.
  std::vector<IslandId> heard() { return heard_.take(); }
  /// To be called now and then: drops a state that nobody has fetched for a while.
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
