#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "atoll/wire/peer.h"

namespace atl::wire {

/// Fills `out` with the blob's bytes from `offset` on. Called by several threads at a time; what it
/// throws ends the transfer.
using Reader = std::function<void(std::uint64_t offset, std::span<std::byte> out)>;
/// Takes the blob's bytes from `offset` on. Called by several threads at a time, never for the same
/// bytes; what it throws ends the transfer.
using Writer = std::function<void(std::uint64_t offset, std::span<const std::byte> data)>;

/// A blob that others may fetch.
struct PublishedBlob {
  std::string key;
  std::uint64_t bytes = 0;
  std::size_t chunk_bytes = kChunkBytes;  ///< a caller that fetches must name the same
  Reader reader;                          ///< only asked for chunks that were marked, whole
  std::vector<std::string> peers = {};    ///< that may fetch it; empty: all authenticated ones
  bool is_complete = false;               ///< as if mark_all() came at once
};

/// A blob that another process may put here.
struct PutPermission {
  std::string key;
  std::uint64_t bytes = 0;
  std::size_t chunk_bytes = kChunkBytes;  ///< a caller that puts must name the same
  Writer writer;                          ///< gets each chunk once
  std::string peer = {};                  ///< that may put it; "": any authenticated one
};

/// Maps a caller to its name as in PublishedBlob::peers and PutPermission::peer. Nothing: the
/// caller is refused before anything is looked up or allocated for it. Called again for each chunk,
/// by several threads at a time.
using Authenticate = std::function<std::optional<std::string>(const Caller&)>;

class BlobTable;

/// What this process lets others fetch and put. Thread safe; must outlive the servers it is given
/// to.
class BlobStore {
 public:
  /// Serves all callers with a valid certificate, by the certificate's name.
  BlobStore();
  explicit BlobStore(Authenticate authenticate);
  ~BlobStore();
  BlobStore(const BlobStore&) = delete;
  BlobStore& operator=(const BlobStore&) = delete;

  /// From now on the blob can be fetched; chunks that are not marked yet are waited for. The key
  /// must not be published already.
  void publish(PublishedBlob offer);
  /// Says that a chunk, or all of them, can be read. An unknown key is ignored: it was withdrawn.
  void mark(const std::string& key, std::uint64_t chunk);
  void mark_all(const std::string& key);

  /// From now on the blob can be put. The key must not be allowed already; it may be published, so
  /// that what one process puts others can fetch.
  void allow_put(PutPermission request);
  /// Whether every chunk of a blob that was allowed has been written; false for an unknown key.
  bool is_put(const std::string& key) const;
  /// From now on `peer` alone may put what is missing of the blob. An unknown key is ignored.
  void hand_over(const std::string& key, const std::string& peer);

  /// Forgets every blob whose key begins so: transfers of them under way end with "gone". Returns
  /// when no reader or writer of them is running any more, so it must not be called from one.
  void withdraw(const std::string& key_prefix);

  /// What servers use.
  BlobTable& table() { return *table_; }

 private:
  std::unique_ptr<BlobTable> table_;
};

/// How many chunks `bytes` are.
inline std::uint64_t num_chunks(std::uint64_t bytes, std::size_t chunk_bytes) {
  return bytes / chunk_bytes + (bytes % chunk_bytes != 0 ? 1 : 0);
}

}  // namespace atl::wire
