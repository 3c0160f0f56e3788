#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "atoll/hub/cache.h"
#include "atoll/hub/http_client.h"

namespace atl::hub {

/// What downloads of several threads count.
struct DownloadCounts {
  std::atomic<std::uint64_t> num_bytes{0};    ///< that are in the cache now and were not before
  std::atomic<std::uint64_t> num_fetched{0};  ///< that came over the network
  std::atomic<std::size_t> num_files{0};
  std::atomic<bool> stops{false};  ///< once true, downloads end as soon as they can
};

/// Brings one file of a commit into the cache and links it into the snapshot: goes on where an
/// earlier download was cut, tries again while what fails may pass, and takes nothing whose hash is
/// not the file's. Waits for whoever downloads the same content. Throws Error(kUser) as
/// refuse_answer, Error(kIo) when it does not come or cannot be written, and Error(kDamaged) when
/// the server has another content twice.
void download_file(HttpClient& client, const HubSettings& settings, const RepoName& name,
                   const std::string& commit, const RepoFile& file, DownloadCounts& counts);

/// Bytes of a file that an earlier download has left in the cache.
std::uint64_t bytes_there(const RepoCache& cache, const RepoFile& file);

}  // namespace atl::hub
