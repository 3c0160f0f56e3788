#pragma once

// Checkpoints of a run: `<run>/checkpoints/step-00000100/` is a Hugging Face directory, so that any
// tool can read the model, with the optimizer's state and a manifest of hashes beside it. There is
// no pointer to the latest: the newest directory whose every byte verifies is the latest.

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/base/threads/thread_pool.h"
#include "atoll/ckpt/manifest.h"
#include "atoll/ckpt/safetensors/writer.h"

namespace atl {
class DirectoryLock;
}

namespace atl::ckpt {

/// A checkpoint that was found whole.
struct CheckpointInfo {
  std::filesystem::path path;
  std::int64_t step = 0;
  std::vector<ManifestFile> files;
};

/// Writes one checkpoint under a temporary name and puts it in place at once, with everything
/// flushed to disk before. Destroyed without commit(), it leaves what was there before.
class CheckpointWriter {
 public:
  /// Begins `root/step-<step>`; makes `root` if it does not exist. Throws Error.
  CheckpointWriter(const std::filesystem::path& root, std::int64_t step);
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Adds a file with this content. Throws Error(kIo) when it cannot be written.
  void add(const std::string& name, std::string_view content);
  /// Adds a safetensors file; see write_safetensors.
  void add_tensors(const std::string& name, std::span<const NamedTensor> tensors,
                   const Metadata& metadata = {});
  void add_tensors(const std::string& name, std::span<const TensorSource> sources,
                   const Metadata& metadata = {});
  /// Where someone else may write a file of this name before commit(), which then hashes it.
  std::filesystem::path file_path(const std::string& name) const;
  /// Where files are until commit(): for the CheckpointPart of whoever writes some of them.
  const std::filesystem::path& temporary() const { return temporary_; }
  /// Adds a file that a CheckpointPart wrote.
  void include(const ManifestFile& file) { files_[file.name] = file; }

  /// Writes the manifest and puts the checkpoint in place, over one of the same step. Returns its
  /// path. Throws Error(kIo); unless only the very last flush failed, nothing has changed then.
  std::filesystem::path commit();

 private:
  Manifest finish_manifest() const;
  void put_in_place();

  std::filesystem::path root_;
  std::int64_t step_;
  std::filesystem::path final_;
  std::filesystem::path temporary_;
  std::unique_ptr<DirectoryLock> lock_;  // of temporary_: somebody still fills it
  std::map<std::string, ManifestFile> files_;
};

/// Writes some files of a checkpoint that another rank's CheckpointWriter puts in place.
class CheckpointPart {
 public:
  /// `temporary`: CheckpointWriter::temporary(). Throws Error(kUser) when it is not there, as where
  /// ranks do not share the storage.
  explicit CheckpointPart(const std::filesystem::path& temporary);

  /// As those of CheckpointWriter.
  void add(const std::string& name, std::string_view content);
  void add_tensors(const std::string& name, std::span<const TensorSource> sources,
                   const Metadata& metadata = {});
  /// Reads back what was written. Throws Error(kDamaged) naming a file that is not as it was.
  void verify() const;
  /// What CheckpointWriter::include wants to know.
  const std::vector<ManifestFile>& files() const { return files_; }

 private:
  std::filesystem::path directory_;
  std::vector<ManifestFile> files_;
};

/// Reads the manifest of a checkpoint directory and compares every file with it. Throws
/// Error(kDamaged) naming the first file that differs and how, Error(kUser) when there is no such
/// directory. `threads` read a file each; without them the caller's does.
CheckpointInfo verify_checkpoint(const std::filesystem::path& directory,
                                 ThreadPool* threads = nullptr);

/// The newest checkpoint under `root` that verifies; nothing when there is none at all. Logs a
/// warning for each damaged one that is passed over; throws Error(kDamaged) when all are.
std::optional<CheckpointInfo> newest_verified(const std::filesystem::path& root,
                                              ThreadPool* threads = nullptr);

/// The checkpoint of a step as its manifest describes it, not verified. Throws as
/// verify_checkpoint.
CheckpointInfo checkpoint_at(const std::filesystem::path& root, std::int64_t step);

/// The steps of the checkpoints under `root`, verified or not, oldest first.
std::vector<std::int64_t> checkpoint_steps(const std::filesystem::path& root);

/// Renames the checkpoints of steps after `step` to damaged-step-*, with a warning each: a run that
/// goes on from `step`, because those after it do not verify, will write them again. One that was
/// set aside before under the same name is replaced.
void set_aside_newer(const std::filesystem::path& root, std::int64_t step);

/// Removes all but the newest `keep` >= 1 checkpoints and those of `spared` steps, after the newest
/// verified; returns how many. Throws Error(kDamaged), having removed nothing, when the newest does
/// not verify. `is_verified`: whoever wrote the newest has read it back.
int prune_checkpoints(const std::filesystem::path& root, int keep, bool is_verified = false,
                      const std::set<std::int64_t>& spared = {});

/// Removes what processes that are no more left half written under `root`, and puts a checkpoint
/// back that one of them had moved aside. For a process that starts and holds the run's lock.
void clean_stale(const std::filesystem::path& root);

}  // namespace atl::ckpt
