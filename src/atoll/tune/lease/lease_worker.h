#pragma once

// The worker: trains trials that a tuner on another machine leases to it.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace atl::tune {

/// The options of `atoll tune work`.
struct WorkOptions {
  std::string address;  ///< the tuner's, HOST:PORT
  std::filesystem::path dir;
  std::string name;          ///< shown to people
  int slots = 1;             ///< how many trials are trained at once
  std::int64_t threads = 0;  ///< of each trial; 0: the CPUs divided by `slots`
  std::optional<std::filesystem::path> identity;
  std::optional<std::filesystem::path> secret;
  double patience_s = 600;  ///< how long to retry while the tuner cannot be reached
  std::string program;      ///< the path of this program, which trains the trials
  std::string version;
};

/// Trains leased trials until the study is over (returns 0) or a signal comes (returns the signal).
/// Makes `dir` if needed, and keeps the files of the trials there; all that they need comes from
/// the tuner. The processes of the trials end when this process ends, whatever the reason. Throws
/// Error(kUser) when the tuner refuses this worker, or `dir` is in use or belongs to another study;
/// Error(kPeer) when the tuner could not be reached for patience_s, or does not give the study's
/// files.
int work(const WorkOptions& options);

}  // namespace atl::tune
