#pragma once

// What a tuner and its workers on other machines say to each other: docs/tune-a-run.md.

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "atoll/tune/lease/file_list.h"

namespace atl::tune {

/// Both sides must have the same.
inline constexpr int kLeaseProtocol = 1;

/// A trial that a worker trains up to a step. `number` fences: of the leases of one trial, which
/// are never with two workers, only the one with the highest number counts.
struct LeaseId {
  int trial = 0;
  int number = 0;  ///< the trial's starts

  friend bool operator==(const LeaseId&, const LeaseId&) = default;
  friend bool operator<(const LeaseId& a, const LeaseId& b) {
    return std::tie(a.trial, a.number) < std::tie(b.trial, b.number);
  }
};

// Of a worker.

/// The first message of each connection.
struct Hello {
  int protocol = kLeaseProtocol;
  std::string version;   ///< of the program
  std::string name;      ///< for people
  std::string instance;  ///< of its directory: a worker that is started again has the same
  int slots = 1;         ///< trials at once
};
/// It has what it needs for the study, and still works on these.
struct Ready {
  std::vector<LeaseId> held;
};
/// The trial's process has ended.
struct Ended {
  LeaseId lease;
  int code = 0;
  std::string line;              ///< the last that it said
  std::vector<FileEntry> files;  ///< of the trial's directory
};
/// All files that were wanted are put.
struct Delivered {
  LeaseId lease;
};
/// It goes, and its leases are free.
struct Leaving {};

// Of the tuner.

/// A path in the recipe, and the files there, which a worker must have.
struct Input {
  std::string key;               ///< of the recipe's setting, or "task.file"
  std::string name;              ///< the path's last part
  bool is_directory = false;     ///< else it is one file
  std::vector<FileEntry> files;  ///< below the path; of a file itself, its name
};
/// The study. Its files are blobs with keys file_key(study_list(...), ...).
struct Welcome {
  std::string identity;  ///< Study::identity()
  std::string study;     ///< the study's file
  std::string recipe;    ///< the recipe's
  std::vector<Input> inputs;
  std::vector<FileEntry> tokens;  ///< the directory data/ of the study
};
/// A trial for the worker. Its files are blobs with keys file_key(key_of(lease), ...).
struct Lease {
  LeaseId id;
  std::int64_t step = 0;  ///< to this one
  std::int64_t reached = 0;
  std::vector<std::pair<std::string, std::string>> settings;
  std::vector<FileEntry> files;  ///< that the trial's directory must have, and no others
};
/// Which of Ended::files are to be put, by index; to keys file_key(back_list(lease), ...).
struct Want {
  LeaseId lease;
  std::vector<int> files;
};
/// What the worker did for the lease is of no more use, or done with.
struct Settled {
  LeaseId lease;
  std::string why;  ///< "": it counts
};
/// The worker cannot take part.
struct Refused {
  std::string why;
};
/// The study is over.
struct Over {};

/// Any of them.
using LeaseMessage = std::variant<Hello, Ready, Ended, Delivered, Leaving, Welcome, Lease, Want,
                                  Settled, Refused, Over>;

/// The list of a lease's files on their way to the worker, "7.2", and on their way back.
std::string key_of(const LeaseId& lease);
std::string back_list(const LeaseId& lease);
/// The list of input `index` of a study; the tokens come after the inputs.
std::string study_list(std::size_t index);
/// The blob's key of file `index` of a list.
std::string file_key(const std::string& list, std::size_t index);

/// As a line of JSON.
std::string encode(const LeaseMessage& message);
/// The reverse, of bytes from another machine. Throws Error(kDamaged) that says what is wrong.
LeaseMessage decode(std::string_view frame);

}  // namespace atl::tune
