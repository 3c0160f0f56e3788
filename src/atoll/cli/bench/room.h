#pragma once

#include <filesystem>

namespace atl::cli {

/// A new directory for files that a benchmark writes; removed with the object.
class BenchRoom {
 public:
  /// Makes it inside `directory`. Throws Error(kUser) when that cannot be.
  explicit BenchRoom(const std::filesystem::path& directory);
  ~BenchRoom();
  BenchRoom(const BenchRoom&) = delete;
  BenchRoom& operator=(const BenchRoom&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace atl::cli
