#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "atoll/wire/blobs.h"

namespace atl::wire {

/// How a server answers for a blob.
enum class BlobAnswer { kOk, kGone, kRefused, kCancelled, kFailed };
struct BlobReply {
  BlobAnswer answer = BlobAnswer::kOk;
  std::string why;
  bool ok() const { return answer == BlobAnswer::kOk; }
};

/// Which blob a peer means; its sizes must be the blob's.
struct BlobCall {
  std::string key;
  std::uint64_t bytes = 0;
  std::uint64_t chunk_bytes = 0;
  std::string peer;  ///< as whom it was authenticated
};

/// What a BlobStore holds, with the calls of its servers. Thread safe.
class BlobTable {
 public:
  explicit BlobTable(Authenticate authenticate) : authenticate_(std::move(authenticate)) {}

  /// As whom a caller is served; nothing: it is not.
  std::optional<std::string> authenticate(const Caller& caller) const {
    return authenticate_(caller);
  }

  void publish(PublishedBlob offer);
  void mark(const std::string& key, std::uint64_t chunk);
  void mark_all(const std::string& key);
  void allow_put(PutPermission request);
  bool is_put(const std::string& key) const;
  void hand_over(const std::string& key, const std::string& peer);
  void withdraw(const std::string& key_prefix);

  /// Whether the peer may fetch the blob now.
  BlobReply check_fetch(const BlobCall& call) const;
  /// Waits until the chunk is marked and reads it into `data`, which gets its size.
  BlobReply read(const BlobCall& call, std::uint64_t chunk,
                 const std::function<bool()>& is_cancelled, std::string& data);
  /// Whether the peer may put the blob now.
  BlobReply check_put(const BlobCall& call) const;
  /// Writes a chunk, unless it was written before.
  BlobReply write(const BlobCall& call, std::uint64_t chunk, std::span<const std::byte> data);

 private:
  enum class Chunk : std::uint8_t { kMissing, kBusy, kThere };
  struct Blob {
    std::uint64_t bytes = 0;
    std::size_t chunk_bytes = 0;
    std::vector<std::string> peers;
    Reader reader;
    Writer writer;
    std::vector<Chunk> chunks;
    std::uint64_t num_missing = 0;
    int num_running = 0;  // calls of reader or writer
    bool is_gone = false;
  };
  // Shared: by the table, and by transfers that are under way when the table forgets it.
  using BlobPtr = std::shared_ptr<Blob>;
  using Blobs = std::map<std::string, BlobPtr>;

  static BlobPtr make_blob(std::uint64_t bytes, std::size_t chunk_bytes,
                           std::vector<std::string> peers);
  static BlobReply find(const Blobs& blobs, const BlobCall& call, BlobPtr& blob);
  static std::size_t size_of(const Blob& blob, std::uint64_t chunk);
  template <typename Call>
  BlobReply run(std::unique_lock<std::mutex>& lock, Blob& blob, const Call& call);

  const Authenticate authenticate_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;  // a chunk, a blob's being gone, the end of a running call
  Blobs offers_;
  Blobs requests_;
};

}  // namespace atl::wire
