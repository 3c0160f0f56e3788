#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "atoll/wire/blobs.h"

namespace atl::wire {

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

}  // namespace atl::wire
