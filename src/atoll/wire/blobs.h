#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
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

/// How many chunks `bytes` are.
inline std::uint64_t num_chunks(std::uint64_t bytes, std::size_t chunk_bytes) {
  return bytes / chunk_bytes + (bytes % chunk_bytes != 0 ? 1 : 0);
}

}  // namespace atl::wire
