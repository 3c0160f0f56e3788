#pragma once

// The files that the tuner gives to its workers and takes back from them.

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

/// Lets workers fetch the files of a study and of the trials that are leased to them. Takes back
/// the files that a trial has written, and installs all of them or none.
class LeaseFiles {
 public:
  /// `study` must outlive this.
  explicit LeaseFiles(const Study& study) : study_(study) {}

  /// The store that the tuner's wire::Server must serve.
  wire::BlobStore& blobs() { return blobs_; }

  /// Lets `peer` ("": every worker) fetch these files of `root` under the keys of `list`.
  void publish(const std::string& list, const std::vector<FileEntry>& files,
               const std::filesystem::path& root, const std::string& peer);

  /// Begins to take back the trial's directory, which has `files` on the worker: lets `peer` send
  /// those that differ from the tuner's copy, and returns their indices. Drops what was received
  /// after an earlier call for the lease. Throws Error(kIo).
  std::vector<int> expect(const LeaseId& lease, const std::vector<FileEntry>& files,
                          const std::string& peer);
  /// Whether expect() was called for the lease.
  bool is_expected(const LeaseId& lease) const { return incoming_.contains(lease); }
  /// Moves the received files into the trial's directory, when all that expect() asked for are
  /// there. False: a file is missing or has another content; the directory is not changed. Throws
  /// Error(kIo).
  bool install(const LeaseId& lease);
  /// Ends all transfers of the lease, both ways. Removes received files that were not installed.
  void withdraw(const LeaseId& lease);

 private:
  // The files that a worker is sending.
  struct Incoming {
    std::vector<FileEntry> files;                       // of the whole directory
    std::vector<int> wanted;                            // indices into `files`
    std::vector<std::unique_ptr<FileInPieces>> pieces;  // of the wanted files
  };

  bool is_whole(const LeaseId& lease, Incoming& incoming);
  void put_in_place(const LeaseId& lease, const Incoming& incoming) const;
  std::filesystem::path staging(const LeaseId& lease) const;

  const Study& study_;
  std::map<LeaseId, Incoming> incoming_;
  wire::BlobStore blobs_;  // last: its writers use the rest
};

}  // namespace atl::tune
