#pragma once

// How a worker fetches files from its tuner and sends files back.

#include <filesystem>
#include <stop_token>
#include <string>
#include <vector>

#include "atoll/tune/lease/file_list.h"
#include "atoll/wire/blob_client.h"

namespace atl::tune {

/// Moves files between a worker and its tuner. Retries without limit while the tuner cannot be
/// reached or data arrives damaged. May be used by several threads.
class FileTransfer {
 public:
  /// Connects when first used. Throws what wire::BlobClient throws.
  explicit FileTransfer(const wire::BlobClientOptions& tuner) : client_(tuner) {}

  /// Fetches the files of the list with key `list` into `root`, except those that `root` has
  /// already. Blocks. False: `stop` was requested, or the tuner refuses or no longer offers a file.
  /// Throws Error(kIo), and Error(kDamaged) for a file whose content is not what the list says.
  bool fetch(const std::string& list, const std::vector<FileEntry>& files,
             const std::filesystem::path& root, const std::stop_token& stop);

  /// Sends the tuner those of `files` whose indices are in `wanted`; they are below `root`. Blocks.
  /// False: `stop` was requested, the tuner refuses or no longer wants a file, or a file's size has
  /// changed.
  bool put(const std::string& list, const std::vector<FileEntry>& files,
           const std::vector<int>& wanted, const std::filesystem::path& root,
           const std::stop_token& stop);

 private:
  bool fetch_one(const std::string& key, const FileEntry& file, const std::filesystem::path& root,
                 const std::stop_token& stop);

  wire::BlobClient client_;
};

}  // namespace atl::tune
