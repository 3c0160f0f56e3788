#pragma once

// A worker on another machine: trains trials that a tuner leases to it.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace atl::tune {

/// What `atoll tune work` was told.
struct WorkOptions {
  std::string address;  ///< the tuner's, HOST:PORT
  std::filesystem::path dir;
  std::string name;          ///< for people
  int slots = 1;             ///< trials at once
  std::int64_t threads = 0;  ///< of each; 0: its share of the CPUs
  std::optional<std::filesystem::path> identity;
  std::optional<std::filesystem::path> secret;
  double patience_s = 600;  ///< without the tuner, until it gives up
  std::string program;      ///< this one
  std::string version;
};

/// Works until the study is over, a signal comes, or the tuner was away for too long; returns the
/// signal, or 0. `dir` is made, and keeps what trials wrote; everything else that they need comes
/// from the tuner. Trials end with this process, however it ends. Throws Error(kUser) when the
/// tuner refuses it, or `dir` is of another study or in use; Error(kPeer) when the tuner is gone.
int work(const WorkOptions& options);

}  // namespace atl::tune
