#pragma once

// Directories as lists of files, so that two machines can make one of them the same as the other.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace atl::tune {

/// A file below a directory.
struct FileEntry {
  std::string path;  ///< from there, with '/' between its parts
  std::uint64_t bytes = 0;
  std::string hash;  ///< XXH3-128 of its content, as 32 hexadecimal digits

  friend bool operator==(const FileEntry&, const FileEntry&) = default;
};

/// All that lies below `root`, directories before what is in them; nothing where there is no such
/// directory. Throws Error(kIo).
std::vector<std::filesystem::directory_entry> entries_below(const std::filesystem::path& root);

/// All regular files below `root` whose paths `takes` accepts, in the order of their paths; none
/// where there is no such directory. Throws Error(kIo).
std::vector<FileEntry> list_files(const std::filesystem::path& root,
                                  const std::function<bool(std::string_view path)>& takes);

/// One file below `root`.
FileEntry entry_of(const std::filesystem::path& root, const std::string& path);

/// A path from outside: throws Error(kDamaged) unless it stays below the directory that it is
/// joined to.
void check_path(const std::string& path);

/// Whether that file lies below `root` with that content.
bool has_file(const std::filesystem::path& root, const FileEntry& file);

/// A file of which pieces come in any order, from several threads: whole when all have come.
class FileInPieces {
 public:
  /// Makes an empty file of `bytes`, and the directories that it lies in. Throws Error(kIo).
  FileInPieces(const std::filesystem::path& path, std::uint64_t bytes);
  ~FileInPieces();
  FileInPieces(const FileInPieces&) = delete;
  FileInPieces& operator=(const FileInPieces&) = delete;

  void write(std::uint64_t offset, std::span<const std::byte> data) const;
  /// Waits until the disk has it.
  void sync() const;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace atl::tune
