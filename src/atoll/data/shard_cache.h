#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "atoll/data/shard.h"

namespace atl::data {

/// Keeps a cached file in its cache: a shared flock(2) on it, gone when the process ends.
class ShardPin {
 public:
  /// Throws Error(kIo) when the file cannot be opened or locked.
  explicit ShardPin(const std::filesystem::path& file);
  ~ShardPin();
  ShardPin(ShardPin&& other) noexcept;
  ShardPin& operator=(ShardPin&& other) noexcept;

 private:
  int fd_ = -1;
};

/// A shard read from a cache.
struct CachedShard {
  ShardPin pin;
  Shard shard;
};

/// Copies of shards from a slow directory (a network file system) in a directory on a local disk,
/// for any number of corpora and processes. It never has more bytes than its limit: before a copy
/// is made, those longest unused are removed. One that somebody reads, in any process, is not;
/// should it be removed by hand, the readers' mappings stay valid. Copies are named by content,
/// verified whenever they are opened, made whole or not at all, and by one process at a time: the
/// others wait and find it there.
class ShardCache {
 public:
  /// Makes the directory. Throws Error(kUser) when it cannot.
  ShardCache(std::filesystem::path directory, std::uint64_t limit_bytes);

  /// Opens the copy of a shard, made now when it is not there or damaged. Throws Error(kUser) when
  /// the shard is larger than the limit, or the shards in use leave it no room; and as Shard does.
  CachedShard open(const std::filesystem::path& source) const;
  const std::filesystem::path& directory() const { return directory_; }
  std::uint64_t limit_bytes() const { return limit_bytes_; }
  /// Bytes of the copies that are there.
  std::uint64_t bytes() const;

 private:
  void make_room(std::uint64_t bytes, const std::filesystem::path& source) const;
  void copy(const std::filesystem::path& source, const std::filesystem::path& to) const;

  std::filesystem::path directory_;
  std::uint64_t limit_bytes_;
};

}  // namespace atl::data
