#pragma once

// What the hub says of a repository: which commit a revision is, and which files that has.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/hub/http_client.h"
#include "atoll/hub/name.h"
#include "atoll/hub/settings.h"

namespace atl::hub {

/// A file of a repository at one commit.
struct RepoFile {
  std::string path;  ///< is_safe_path()
  std::uint64_t size = 0;
  std::string blob_id;   ///< SHA-1 of the object that Git keeps: 40 hexadecimal digits
  std::string sha256;    ///< of a file in large file storage: 64 digits; empty: Git has it
  std::string xet_hash;  ///< carried for other programs; empty: none

  /// What its content is called in the cache: the SHA-256 or, of what Git has, the SHA-1.
  const std::string& etag() const { return sha256.empty() ? blob_id : sha256; }
};

/// The most files that are taken of a repository.
inline constexpr std::size_t kMostFiles = 1'000'000;

/// The commit in an answer of /api/models/ID/revision/REVISION. Throws Error(kDamaged) that begins
/// with `origin` for what is none.
std::string parse_commit(std::string_view json, const std::string& origin);

/// The files in a page of /api/models/ID/tree/COMMIT; directories are left out. Throws
/// Error(kDamaged) that begins with `origin` for what is none, also for a path that leads out of
/// a directory and for hashes that are none.
std::vector<RepoFile> parse_tree(std::string_view json, const std::string& origin);

/// The address with rel="next" in a Link field; empty: there is none.
std::string next_link(std::string_view link);

/// "https://huggingface.co/api/models/org/name": what follows says what is asked.
std::string api_url(const HubSettings& settings, const RepoName& name);

/// Where a file is got from.
std::string file_url(const HubSettings& settings, const RepoName& name, const std::string& commit,
                     const std::string& path);

/// Throws the Error for an answer that is not 2xx: Error(kUser) naming the repository where it is
/// missing, gated, private, or has no such revision or file, and what to do; Error(kIo) otherwise.
[[noreturn]] void refuse_answer(const HttpResponse& response, const HubSettings& settings,
                                const RepoName& name);

/// The commit that the revision of `name` is now. Throws as refuse_answer and get_patiently.
std::string ask_commit(HttpClient& client, const HubSettings& settings, const RepoName& name);

/// All files of a commit, in the order of their paths. Throws as refuse_answer and get_patiently.
std::vector<RepoFile> ask_files(HttpClient& client, const HubSettings& settings,
                                const RepoName& name, const std::string& commit);

}  // namespace atl::hub
