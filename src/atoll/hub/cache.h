#pragma once

// Where files of a repository lie: the layout of huggingface_hub, which other programs share.
//
//   models--org--name/refs/main               the commit that the revision was when it was got
//   models--org--name/blobs/ETAG              contents, each once
//   models--org--name/blobs/ETAG.incomplete   what has come of one so far
//   models--org--name/snapshots/COMMIT/PATH   links to contents
//   models--org--name/trees/COMMIT.json       the list of all files of a commit
//   models--org--name/.no_exist/COMMIT/PATH   empty: there is no such file at that commit
//   .locks/models--org--name/ETAG.lock

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "atoll/hub/api.h"
#include "atoll/hub/name.h"
#include "atoll/hub/settings.h"

namespace atl::hub {

/// The files of one repository in the cache. Any number of processes may use it at a time.
class RepoCache {
 public:
  RepoCache(const HubSettings& settings, const RepoName& name);

  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path snapshot(const std::string& commit) const;
  std::filesystem::path blob(const RepoFile& file) const;
  std::filesystem::path lock(const RepoFile& file) const;

  /// The commit that a revision was when it was last got; nothing where it was not, or the file
  /// holds no commit.
  std::optional<std::string> read_ref(const std::string& revision) const;
  /// Takes note of it, unless that is known. Where the cache cannot be written nothing happens.
  void write_ref(const std::string& revision, const std::string& commit) const;

  /// The list of files that was kept; nothing where there is none, or it is damaged.
  std::optional<std::vector<RepoFile>> read_tree(const std::string& commit) const;
  /// Keeps it. Where the cache cannot be written nothing happens.
  void write_tree(const std::string& commit, const std::vector<RepoFile>& files) const;
  /// The files that a snapshot has, for one whose list nobody kept: without hashes.
  std::vector<RepoFile> files_there(const std::string& commit) const;

  /// Whether a snapshot has the file, whole as far as its size says.
  bool has(const std::string& commit, const RepoFile& file) const;
  /// Puts a content that is in blobs/ into a snapshot, as a link. Where there are no links the file
  /// is moved there (`is_new`: nobody else uses it), or copied. Throws Error(kIo).
  void link(const std::string& commit, const RepoFile& file, bool is_new) const;
  /// Takes note that a commit has no such file. Where the cache cannot be written nothing happens.
  void write_absent(const std::string& commit, const std::string& path) const;

  /// Makes the directories that downloads need, and the mark by which backups leave them out.
  /// Throws Error naming the directory.
  void prepare() const;

 private:
  std::filesystem::path cache_;
  std::string folder_;  // "models--org--name"
  std::filesystem::path root_;
  bool has_symlinks_;
};

}  // namespace atl::hub
