#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "atoll/compress/codec.h"
#include "atoll/island/client/delta_pieces.h"
#include "atoll/island/client/outer_codecs.h"
#include "atoll/island/client/recent_senders.h"
#include "atoll/island/client/shard.h"
#include "atoll/island/outer/state_part.h"
#include "atoll/island/protocol/protocol.h"
#include "atoll/wire/blob_client.h"
#include "atoll/wire/blob_store.h"
#include "atoll/wire/peer.h"

namespace atl::island {

/// Who this island is and how it reaches others.
struct ExchangeOptions {
  std::string coordinator;                        ///< HOST:PORT, for what goes through it
  std::optional<std::filesystem::path> identity;  ///< see wire::BlobClientOptions
  std::optional<std::filesystem::path> secret = {};
  std::string relay_token = {};  ///< as this island's Join told it
  int streams = 4;               ///< connections to each other island
  ShardPlace place = {};         ///< of this rank in its island
  int state_vectors = 1;         ///< StatePart::vectors()
};

/// What is needed to fetch from another island besides its address.
struct Contact {
  std::string name;        ///< that its certificate must have
  std::string peer_token;  ///< to be shown with each call (View)
};
using Contacts = std::map<IslandId, Contact>;

/// How an exchange ended.
struct ExchangeResult {
  bool is_done = false;
  std::vector<IslandId> unreachable;  ///< whose parts are missing, ascending
  std::string why;
  bool is_gone = false;                     ///< of state: no source has it any more
  std::vector<LinkMeasurement> links = {};  ///< of a reduction: to those that bytes came from
};

/// Moves pseudo-gradients, their sums and state between islands: all of each, or a rank's part of
/// it (shard_range()) from and to the ranks of other islands that have some of that. Sums are made
/// in the order of island numbers in f32, each piece by one of the islands or by all of them,
/// whichever moves fewer bytes; so all end with the same bits. One thread at a time.
class Exchange {
 public:
  /// All must outlive this; `store` is what this island's server serves.
  Exchange(ExchangeOptions options, wire::BlobStore& store, OuterCodecs& codecs);
  ~Exchange();

  /// Others may ask for this island's pseudo-gradient of an outer step, until the next but one.
  /// They get it from reduce() on, before which it must be encoded.
  void offer(std::int64_t outer_step, std::shared_ptr<const EncodedDelta> delta);
  /// Called with a part of the mean when it is there: its elements from `begin` on, of those that
  /// are here. Called by several threads, for each element once.
  using OnPiece = std::function<void(std::size_t begin, std::span<const float> mean)>;
  /// Makes the weighted mean of the participants' pseudo-gradients of `elements`, what this rank
  /// has of them. `self`: this island.
  ExchangeResult reduce(const Stamp& stamp, const Reduce& reduce, IslandId self,
                        const Contacts& contacts, std::int64_t elements, std::span<float> mean,
                        const std::stop_token& cancel, const OnPiece& on_piece = {});
  /// Ends the transfers of an attempt's sums to other islands.
  void drop_sums();

  /// Lets others fetch a part of a fragment's state by the hash of all of it; the one published
  /// before for this fragment is not there any more. `keep` holds the memory of `values`, which lie
  /// as FragmentState has them.
  void publish_state(int fragment, const StateHash& hash, const StatePart& part,
                     std::span<const float> values, std::shared_ptr<const void> keep);
  /// Fetches a part of a state by its hash, some of it from each of `sources` as far as they have
  /// it.
  ExchangeResult fetch_state(const StateHash& hash, const std::vector<Source>& sources,
                             const Contacts& contacts, const StatePart& part,
                             std::span<float> values, const std::stop_token& cancel);

  /// Puts a part of a state to the coordinator, for islands that can reach no source. May run
  /// beside all else. `done`: chunks that are there already, and that it puts; empty: none.
  ExchangeResult put_state(const StateHash& hash, const StatePart& part,
                           std::span<const float> values, std::vector<bool>& done,
                           const std::stop_token& cancel);

  /// The islands from which bytes have come. From any thread.
  RecentSenders& heard() { return heard_; }
  /// Payload of all exchanges so far.
  const wire::TrafficCounters& traffic() const { return traffic_; }

 private:
  class Reduction;

  // Safe to call from several threads.
  wire::BlobClient& remote(const std::string& address, const Contact& contact);
  wire::BlobClient& coordinator() { return remote("", {"", options_.relay_token}); }

  ExchangeOptions options_;
  wire::BlobStore& store_;
  OuterCodecs& codecs_;
  wire::TrafficCounters traffic_;
  RecentSenders heard_;
  std::mutex remotes_mutex_;
  std::map<std::string, std::unique_ptr<wire::BlobClient>> remotes_;     // by address and contact
  std::map<std::int64_t, std::shared_ptr<const EncodedDelta>> offered_;  // by outer step
  std::map<int, std::string> state_keys_;                                // by fragment
};

/// Where an island's pseudo-gradient is fetched from the coordinator, in a star; it is put there
/// under the same key behind kPutPrefix.
std::string relay_key(std::int64_t outer_step, IslandId island);
inline constexpr const char* kPutPrefix = "put/";
/// Where state is fetched from an island, or from the coordinator, to which it is put the same way.
std::string state_key(const StateHash& hash);

/// "0123...": 32 hexadecimal digits.
std::string to_text(const StateHash& hash);

}  // namespace atl::island
