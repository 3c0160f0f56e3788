#pragma once

#include <filesystem>
#include <string>

namespace atl::model_dir {

/// A directory that appears whole or not at all: filled beside its place under another name, then
/// renamed. Without commit() nothing of it stays, and what a killed process left of the same one is
/// removed by the next.
class NewDirectory {
 public:
  /// Throws Error(kUser) naming `option` (what asked for it) when `path` names no directory, is
  /// there already, or cannot be made.
  NewDirectory(const std::filesystem::path& path, const std::string& option);
  ~NewDirectory();
  NewDirectory(const NewDirectory&) = delete;
  NewDirectory& operator=(const NewDirectory&) = delete;

  /// Where to write until commit().
  const std::filesystem::path& temporary() const { return temporary_; }
  /// Makes it appear. Throws Error(kIo) when the system refuses. Call once, last.
  void commit();

 private:
  void make_temporary();

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int marker_ = -1;  // an open, locked file in `temporary_`: somebody still fills it
};

/// Copies a file to a new one that is on the disk, whole, when this returns.
void copy_durably(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace atl::model_dir
