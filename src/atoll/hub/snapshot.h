#pragma once

// The files of a repository as a directory.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "atoll/hub/api.h"
#include "atoll/hub/name.h"
#include "atoll/hub/settings.h"

namespace atl::hub {

/// Gets one file and gives its content, of at most 64 MiB: for whoever chooses files by what others
/// say.
using ReadRepoFile = std::function<std::string(const RepoFile& file)>;

/// Chooses files of `files`, which are all that a commit has, in the order of their paths. Throws
/// Error(kUser) where what is needed is not among them.
using ChooseFiles = std::function<std::vector<RepoFile>(const std::vector<RepoFile>& files,
                                                        const ReadRepoFile& read)>;

/// Files that are on this machine now.
struct Snapshot {
  std::filesystem::path directory;  ///< of the commit, in the cache
  std::string commit;
  std::vector<RepoFile> files;      ///< those that were chosen
  std::uint64_t fetched_bytes = 0;  ///< that came over the network for them
  std::vector<std::string> absent;  ///< paths that were looked for and are not in the repository

  /// Where a path of the repository is; empty: the directory itself.
  std::filesystem::path below(const std::string& path) const {
    return path.empty() ? directory : directory / path;
  }
};

/// Brings files of the revision of `name` into the cache, several at a time, and gives their
/// directory. Files that are there already are not got again: a commit that is there with all
/// chosen files needs no network, and neither does anything with HF_HUB_OFFLINE. `wanted` are paths
/// that programs look for: the cache takes note of those that the commit does not have. Throws
/// Error(kUser) for what the hub does not have or may not give, for files that are missing offline,
/// and for a disk with too little room; Error(kIo) and Error(kDamaged) as download_file.
Snapshot get_snapshot(const HubSettings& settings, const RepoName& name, const ChooseFiles& choose,
                      const std::vector<std::string>& wanted = {});

}  // namespace atl::hub
