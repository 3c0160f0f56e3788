#pragma once

// The messages between a tuner and its workers on other machines: docs/tune-a-run.md.

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "atoll/tune/lease/file_list.h"

namespace atl::tune {

/// The version of the protocol; tuner and worker must have the same.
inline constexpr int kLeaseProtocol = 1;

/// Names a lease: one assignment of a trial to one worker, up to a step. Of all leases of a trial
/// only the one with the highest number counts; the tuner ignores what comes from older leases.
struct LeaseId {
  int trial = 0;
  int number = 0;  ///< how often the trial was started, this start included

  friend bool operator==(const LeaseId&, const LeaseId&) = default;
  friend bool operator<(const LeaseId& a, const LeaseId& b) {
    return std::tie(a.trial, a.number) < std::tie(b.trial, b.number);
  }
};

// Messages of a worker.

/// The first message of each connection.
struct Hello {
  int protocol = kLeaseProtocol;
  std::string version;   ///< of the program
  std::string name;      ///< shown to people
  std::string instance;  ///< of the worker's directory; the same when the worker is started again
  int slots = 1;         ///< how many trials the worker trains at once
};
/// The worker has the study's files. `held` are the leases that it still works on.
struct Ready {
  std::vector<LeaseId> held;
};
/// The trial's process has ended.
struct Ended {
  LeaseId lease;
  int code = 0;
  std::string line;              ///< the last line that the process printed
  std::vector<FileEntry> files;  ///< of the trial's directory
};
/// The worker has sent all files that Want asked for.
struct Delivered {
  LeaseId lease;
};
/// The worker leaves; the tuner may lease its trials to others.
struct Leaving {};

// Messages of the tuner.

/// A path that the recipe or the task names, with its files, which every worker must have.
struct Input {
  std::string key;               ///< the recipe's setting, or "task.file"
  std::string name;              ///< the path's last part
  bool is_directory = false;     ///< else it is one file
  std::vector<FileEntry> files;  ///< those in the directory; or the file itself, by its name
};
/// The study. The worker fetches the files as blobs with keys file_key(study_list(...), ...).
struct Welcome {
  std::string identity;  ///< Study::identity()
  std::string study;     ///< the study as TOML
  std::string recipe;    ///< the recipe as TOML
  std::vector<Input> inputs;
  std::vector<FileEntry> tokens;  ///< the files in the directory data/ of the study
};
/// A trial for the worker to train. The worker fetches `files` as blobs with keys
/// file_key(key_of(id), ...).
struct Lease {
  LeaseId id;
  std::int64_t step = 0;     ///< where training ends
  std::int64_t reached = 0;  ///< the step that the trial has reached before
  std::vector<std::pair<std::string, std::string>> settings;
  std::vector<FileEntry> files;  ///< what the trial's directory must have, and nothing else
};
/// The indices of those Ended::files that the worker must send, as blobs with keys
/// file_key(back_list(lease), ...).
struct Want {
  LeaseId lease;
  std::vector<int> files;
};
/// The lease is over. The worker drops its work on the lease.
struct Settled {
  LeaseId lease;
  std::string why;  ///< why the tuner ignores the lease; "": the result counts
};
/// The worker cannot take part.
struct Refused {
  std::string why;
};
/// The study is over.
struct Over {};

/// Any message.
using LeaseMessage = std::variant<Hello, Ready, Ended, Delivered, Leaving, Welcome, Lease, Want,
                                  Settled, Refused, Over>;

/// The names of two lists of a lease's files: those for the worker, "7.2", and those that come back
/// from it, "7.2/back".
std::string key_of(const LeaseId& lease);
std::string back_list(const LeaseId& lease);
/// The name of the list of input `index` of a study. The list after the last input is the tokens.
std::string study_list(std::size_t index);
/// The key of the blob for file `index` of a list.
std::string file_key(const std::string& list, std::size_t index);

/// A message as one line of JSON.
std::string encode(const LeaseMessage& message);
/// The reverse, for bytes from another machine. Throws Error(kDamaged) that says what is wrong.
LeaseMessage decode(std::string_view frame);

}  // namespace atl::tune
