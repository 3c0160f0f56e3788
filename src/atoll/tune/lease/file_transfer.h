#pragma once

// A worker's files from and to its tuner.

#include <filesystem>
#include <stop_token>
#include <string>
#include <vector>

#include "atoll/tune/lease/file_list.h"
#include "atoll/wire/blob_client.h"

namespace atl::tune {

/// Moves files from and to a tuner, and tries again for as long as that takes. May be used by
/// several threads.
class FileTransfer {
 public:
  /// Connects when first used. Throws what wire::BlobClient throws.
  explicit FileTransfer(const wire::BlobClientOptions& tuner) : client_(tuner) {}

  /// Makes `root` have the files of a list; those that it has already stay. False: it was stopped,
  /// or the tuner no longer offers them. Throws Error(kIo), and Error(kDamaged) for a file that is
  /// not what the list says.
  bool fetch(const std::string& list, const std::vector<FileEntry>& files,
             const std::filesystem::path& root, const std::stop_token& stop);

  /// Gives the tuner those of `files`, by index, that it wants. False: it was stopped, or the tuner
  /// does not want them any more.
  bool put(const std::string& list, const std::vector<FileEntry>& files,
           const std::vector<int>& wanted, const std::filesystem::path& root,
           const std::stop_token& stop);

 private:
  bool fetch_one(const std::string& key, const FileEntry& file, const std::filesystem::path& root,
                 const std::stop_token& stop);

  wire::BlobClient client_;
};

}  // namespace atl::tune
