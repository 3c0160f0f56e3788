#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "atoll/wire/blob_transfer.h"
#include "atoll/wire/blobs.h"
#include "atoll/wire/peer.h"

namespace atl::wire {

/// Where blobs are fetched from and put to, and as whom.
struct BlobClientOptions {
  std::string address;  ///< HOST:PORT
  /// A directory for load_identity(). Without: plaintext, which only loopback is allowed.
  std::optional<std::filesystem::path> identity;
  /// A file with a Secret that both sides must know; only where there is no identity.
  std::optional<std::filesystem::path> secret = {};
  /// The name that the server's certificate must have; empty: the host of `address`.
  std::string server_name;
  std::string access_token = {};  ///< shown with each call: Caller::access_token; "": none
  int streams = 4;  ///< connections used side by side, 1 to 64; kept between transfers
  /// A transfer uses one from the beginning, two from a quarter of this on, and one more for each
  /// so many bytes. Connections of one link push each other's packets out of its queue: until they
  /// have found their shares, and where one waits for a lost packet at the end, many cost more than
  /// they bring. One alone leaves the link idle when it has to wait.
  std::uint64_t bytes_per_stream = std::uint64_t{4} << 20;
  int connect_timeout_ms = 5'000;
  Keepalive keepalive;
  TrafficCounters* traffic =
      nullptr;  ///< counts for the caller, if given; must outlive the BlobClient
};

/// Another process that serves blobs. May be used by several threads.
class BlobClient {
 public:
  /// Connects when first used. Throws Error(kUser) for a bad address, plaintext to more than
  /// loopback, and what load_identity() throws.
  explicit BlobClient(const BlobClientOptions& options);
  ~BlobClient();
  BlobClient(const BlobClient&) = delete;
  BlobClient& operator=(const BlobClient&) = delete;

  /// Fetches the chunks for which done[i] is false (an empty `done` is filled with false first),
  /// waits for those that are not available yet, compares each with its XXH3-64 and gives it to
  /// `write`; then done[i] is true. Calling again goes on where this stopped. Rethrows what `write`
  /// throws.
  TransferResult fetch(const BlobTransfer& transfer, std::vector<bool>& done, const Writer& write);

  /// The same the other way: `read` gives the chunks, and done[i] is true once the other side has
  /// said that it wrote it.
  TransferResult put(const BlobTransfer& transfer, std::vector<bool>& done, const Reader& read);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace atl::wire
