#pragma once

// The tuner's files for its workers, and those that come back.

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "atoll/tune/lease/file_list.h"
#include "atoll/tune/lease/lease_messages.h"
#include "atoll/tune/trial/study.h"
#include "atoll/wire/blob_store.h"

namespace atl::tune {

/// Lets workers fetch the files of a study and of the trials that are leased to them, and takes
/// what a trial has written back into its directory: all of it or nothing.
class LeaseFiles {
 public:
  /// `study` must outlive this.
  explicit LeaseFiles(const Study& study) : study_(study) {}

  /// What a wire::Server is to serve.
  wire::BlobStore& blobs() { return blobs_; }

  /// Lets `peer` ("": every worker) fetch these files of `root`.
  void publish(const std::string& list, const std::vector<FileEntry>& files,
               const std::filesystem::path& root, const std::string& peer);

  /// Begins to take back the trial's directory, which has `files` at the worker: `peer` may put
  /// those that differ from what is here. Returns these, by index. What came of an earlier call for
  /// the lease is dropped. Throws Error(kIo).
  std::vector<int> expect(const LeaseId& lease, const std::vector<FileEntry>& files,
                          const std::string& peer);
  /// Whether expect() was called for the lease.
  bool is_expected(const LeaseId& lease) const { return incoming_.contains(lease); }
  /// Puts what came in place, when it is all that expect() asked for. False: something is missing
  /// or has another content; nothing was changed. Throws Error(kIo).
  bool install(const LeaseId& lease);
  /// No file of the lease goes or comes any more; what was not installed is removed.
  void withdraw(const LeaseId& lease);

 private:
  // What a worker is putting.
  struct Incoming {
    std::vector<FileEntry> files;  // of the whole directory
    std::vector<int> wanted;
    std::vector<std::unique_ptr<FileInPieces>> pieces;  // of those that are wanted
  };

  bool is_whole(const LeaseId& lease, Incoming& incoming);
  void put_in_place(const LeaseId& lease, const Incoming& incoming) const;
  std::filesystem::path staging(const LeaseId& lease) const;

  const Study& study_;
  std::map<LeaseId, Incoming> incoming_;
  wire::BlobStore blobs_;  // last: its writers use the rest
};

}  // namespace atl::tune
