#pragma once

// A file that stands in for memory while a process runs: nothing of it outlives the process.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace atl {

/// Pages of a scratch file: what the device moves past the page cache begins and ends on one.
constexpr std::size_t kFilePage = 4096;

/// Zeroed bytes in a file without a name: the system takes its room back when the process ends,
/// however it ends. All of its room is taken at once, so that a disk cannot be full later. Bytes
/// are moved past the page cache (O_DIRECT) where the file system can: what was read is then not
/// held a second time in memory. Not copied, not moved.
class ScratchFile {
 public:
  /// In `directory`, which is made if it is missing. Throws Error naming directory, bytes and what
  /// to do: kUser where the process may not write there, kIo where there is no room.
  ScratchFile(const std::filesystem::path& directory, std::uint64_t bytes);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  std::uint64_t bytes() const { return bytes_; }
  /// Whether the file system moves bytes past the page cache.
  bool is_direct() const { return direct_ >= 0; }
  /// The whole file as memory, for what is not in a hurry: the system reads what is touched and
  /// writes it back as it likes. Sees what write() wrote, and read() sees what is written here.
  std::byte* mapped() const { return mapped_; }

  /// Gives back the memory that mapped bytes [offset, offset + size) take, and begins to write what
  /// was changed there. They stay what they are: whoever touches them again reads them again.
  void give_back(std::uint64_t offset, std::uint64_t size) const;

  /// Moves bytes [offset, offset + size) of the file to or from memory; returns when that is done.
  /// Goes past the page cache as far as whole pages of the file lie at whole pages of memory: both
  /// begin at the same place of a page. Several threads may call them for bytes that do not
  /// overlap. Throws Error(kIo) naming the directory, the bytes and the reason.
  void read(std::uint64_t offset, std::span<std::byte> to) const;
  void write(std::uint64_t offset, std::span<const std::byte> from) const;

 private:
  void open();
  void reserve() const;
  template <typename Bytes, typename Move>
  void in_parts(std::uint64_t offset, Bytes bytes, Move&& move) const;

  std::filesystem::path directory_;
  std::uint64_t bytes_;
  int cached_ = -1;  // through the page cache
  int direct_ = -1;  // past it; -1: the file system has no such thing
  std::byte* mapped_ = nullptr;
};

}  // namespace atl
