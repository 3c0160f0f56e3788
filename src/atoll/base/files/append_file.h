#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace atl {

/// A log that only grows: every append() is given to the system whole before it returns, so that a
/// crash of the process loses nothing. Made if it does not exist.
class AppendFile {
 public:
  /// Throws Error naming the path and the reason.
  explicit AppendFile(const std::filesystem::path& path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  /// Throws Error naming the path; what was there of `piece` by then is taken back, so that a full
  /// disk leaves no half record.
  void append(std::string_view piece);
  /// Waits until the disk has it all.
  void sync();

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  std::uint64_t bytes_ = 0;
};

}  // namespace atl
