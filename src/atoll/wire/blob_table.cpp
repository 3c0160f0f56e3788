#include "atoll/wire/blob_table.h"

#include <algorithm>
#include <chrono>

#include "atoll/base/check.h"
#include "atoll/base/log.h"

namespace atl::wire {

BlobTable::BlobPtr BlobTable::make_blob(std::uint64_t bytes, std::size_t chunk_bytes,
                                        std::vector<std::string> peers) {
  ATOLL_CHECK(chunk_bytes > 0 && chunk_bytes <= kMaxChunkBytes, "chunks of {}", chunk_bytes);
  auto blob = std::make_shared<Blob>();
  blob->bytes = bytes;
  blob->chunk_bytes = chunk_bytes;
  blob->peers = std::move(peers);
  blob->num_missing = num_chunks(bytes, chunk_bytes);
  blob->chunks.resize(blob->num_missing, Chunk::kMissing);
  return blob;
}

void BlobTable::publish(PublishedBlob offer) {
  const BlobPtr blob = make_blob(offer.bytes, offer.chunk_bytes, std::move(offer.peers));
  blob->reader = std::move(offer.reader);
  if (offer.is_complete) std::ranges::fill(blob->chunks, Chunk::kThere);
  const std::lock_guard lock(mutex_);
  const bool is_new = offers_.emplace(offer.key, blob).second;
  ATOLL_CHECK(is_new, "{} is published already", offer.key);
}

void BlobTable::mark(const std::string& key, std::uint64_t chunk) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = offers_.find(key);
    if (found == offers_.end()) return;
    ATOLL_CHECK(chunk < found->second->chunks.size(), "chunk {} of {}, which has {}", chunk, key,
                found->second->chunks.size());
    found->second->chunks[chunk] = Chunk::kThere;
  }
  changed_.notify_all();
}

void BlobTable::mark_all(const std::string& key) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = offers_.find(key);
    if (found == offers_.end()) return;
    std::ranges::fill(found->second->chunks, Chunk::kThere);
  }
  changed_.notify_all();
}

void BlobTable::allow_put(PutPermission request) {
  std::vector<std::string> peers;
  if (!request.peer.empty()) peers.push_back(request.peer);
  const BlobPtr blob = make_blob(request.bytes, request.chunk_bytes, std::move(peers));
  blob->writer = std::move(request.writer);
  const std::lock_guard lock(mutex_);
  const bool is_new = requests_.emplace(request.key, blob).second;
  ATOLL_CHECK(is_new, "{} is allowed to be put already", request.key);
}

bool BlobTable::is_put(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = requests_.find(key);
  return found != requests_.end() && found->second->num_missing == 0;
}

void BlobTable::hand_over(const std::string& key, const std::string& peer) {
  const std::lock_guard lock(mutex_);
  const auto found = requests_.find(key);
  if (found != requests_.end()) found->second->peers = {peer};
}

void BlobTable::withdraw(const std::string& key_prefix) {
  std::unique_lock lock(mutex_);
  std::vector<BlobPtr> gone;
  for (Blobs* blobs : {&offers_, &requests_}) {
    auto at = blobs->lower_bound(key_prefix);
    while (at != blobs->end() && at->first.starts_with(key_prefix)) {
      at->second->is_gone = true;
      gone.push_back(at->second);
      at = blobs->erase(at);
    }
  }
  changed_.notify_all();
  changed_.wait(lock, [&] {
    return std::ranges::all_of(gone, [](const BlobPtr& blob) { return blob->num_running == 0; });
  });
}

BlobReply BlobTable::find(const Blobs& blobs, const BlobCall& call, BlobPtr& blob) {
  const auto found = blobs.find(call.key);
  if (found == blobs.end()) return {BlobAnswer::kGone, fmt::format("{} is not here", call.key)};
  blob = found->second;
  const auto& peers = blob->peers;
  if (!peers.empty() && std::ranges::find(peers, call.peer) == peers.end()) {
    return {BlobAnswer::kRefused, fmt::format("{} is not for {}", call.key, call.peer)};
  }
  if (call.bytes != blob->bytes || call.chunk_bytes != blob->chunk_bytes) {
    return {BlobAnswer::kRefused,
            fmt::format("{} has {} bytes in chunks of {} here, not {} in chunks of {}", call.key,
                        blob->bytes, blob->chunk_bytes, call.bytes, call.chunk_bytes)};
  }
  return {};
}

std::size_t BlobTable::size_of(const Blob& blob, std::uint64_t chunk) {
  const std::uint64_t offset = chunk * blob.chunk_bytes;
  return static_cast<std::size_t>(std::min<std::uint64_t>(blob.chunk_bytes, blob.bytes - offset));
}

// Calls the owner's reader or writer without the lock; withdraw() waits for such calls.
template <typename Call>
BlobReply BlobTable::run(std::unique_lock<std::mutex>& lock, Blob& blob, const Call& call) {
  ++blob.num_running;
  lock.unlock();
  BlobReply reply;
  try {
    call();
  } catch (const std::exception& error) {
    reply = {BlobAnswer::kFailed, error.what()};
  }
  lock.lock();
  --blob.num_running;
  changed_.notify_all();
  return reply;
}

BlobReply BlobTable::check_fetch(const BlobCall& call) const {
  const std::lock_guard lock(mutex_);
  BlobPtr blob;
  return find(offers_, call, blob);
}

BlobReply BlobTable::read(const BlobCall& call, std::uint64_t chunk,
                          const std::function<bool()>& is_cancelled, std::string& data) {
  std::unique_lock lock(mutex_);
  BlobPtr blob;
  BlobReply reply = find(offers_, call, blob);
  if (!reply.ok()) return reply;
  if (chunk >= blob->chunks.size()) {
    return {BlobAnswer::kRefused,
            fmt::format("chunk {} of {}, which has {}", chunk, call.key, blob->chunks.size())};
  }
  while (blob->chunks[chunk] != Chunk::kThere && !blob->is_gone) {
    if (is_cancelled()) return {BlobAnswer::kCancelled, "cancelled"};
    // gRPC has no way to wake a waiting thread when a call is cancelled.
    changed_.wait_for(lock, std::chrono::milliseconds(50));
  }
  if (blob->is_gone) return {BlobAnswer::kGone, fmt::format("{} was withdrawn", call.key)};
  data.resize(size_of(*blob, chunk));
  return run(lock, *blob, [&] {
    blob->reader(chunk * blob->chunk_bytes, std::as_writable_bytes(std::span(data)));
  });
}

BlobReply BlobTable::check_put(const BlobCall& call) const {
  const std::lock_guard lock(mutex_);
  BlobPtr blob;
  return find(requests_, call, blob);
}

BlobReply BlobTable::write(const BlobCall& call, std::uint64_t chunk,
                           std::span<const std::byte> data) {
  std::unique_lock lock(mutex_);
  BlobPtr blob;
  BlobReply reply = find(requests_, call, blob);
  if (!reply.ok()) return reply;
  if (chunk >= blob->chunks.size() || data.size() != size_of(*blob, chunk)) {
    return {BlobAnswer::kRefused, fmt::format("chunk {} with {} bytes does not fit {}, {} bytes",
                                              chunk, data.size(), call.key, call.bytes)};
  }
  // Another call may still be writing this chunk: one that its client gave up.
  changed_.wait(lock, [&] { return blob->chunks[chunk] != Chunk::kBusy; });
  if (blob->is_gone) return {BlobAnswer::kGone, fmt::format("{} was withdrawn", call.key)};
  if (blob->chunks[chunk] == Chunk::kThere) return {};
  blob->chunks[chunk] = Chunk::kBusy;
  reply = run(lock, *blob, [&] { blob->writer(chunk * blob->chunk_bytes, data); });
  blob->chunks[chunk] = reply.ok() ? Chunk::kThere : Chunk::kMissing;
  if (reply.ok()) --blob->num_missing;
  changed_.notify_all();
  return reply;
}

}  // namespace atl::wire
