#pragma once

// Lists of the files in a directory, by which a machine finds the files that its copy lacks.

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
  std::string path;  ///< relative to that directory, with '/' between its parts
  std::uint64_t bytes = 0;
  std::string hash;  ///< XXH3-128 of its content, as 32 hexadecimal digits

  friend bool operator==(const FileEntry&, const FileEntry&) = default;
};

/// All files and directories below `root`, a directory before its content; none where `root` is no
/// directory. Throws Error(kIo).
std::vector<std::filesystem::directory_entry> entries_below(const std::filesystem::path& root);

/// All regular files below `root` whose relative paths `takes` accepts, sorted by path; none where
/// `root` is no directory. Reads each file for its hash. Throws Error(kIo).
std::vector<FileEntry> list_files(const std::filesystem::path& root,
                                  const std::function<bool(std::string_view path)>& takes);

/// The entry of one file below `root`, which is read. Throws Error(kIo).
FileEntry entry_of(const std::filesystem::path& root, const std::string& path);

/// Checks a path that another machine sent. Throws Error(kDamaged) unless it is relative, normal,
/// and stays below the directory that it is joined to.
void check_path(const std::string& path);

/// Whether that file exists below `root` with this size and hash.
bool has_file(const std::filesystem::path& root, const FileEntry& file);

/// A file that is written in pieces, in any order, from several threads. The caller knows when all
/// pieces are written.
class FileInPieces {
 public:
  /// Makes a file of `bytes` zeros, and its parent directories. Throws Error(kIo).
  FileInPieces(const std::filesystem::path& path, std::uint64_t bytes);
  ~FileInPieces();
  FileInPieces(const FileInPieces&) = delete;
  FileInPieces& operator=(const FileInPieces&) = delete;

  /// Throws Error(kIo).
  void write(std::uint64_t offset, std::span<const std::byte> data) const;
  /// Waits until the disk has what was written. Throws Error(kIo).
  void sync() const;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace atl::tune
