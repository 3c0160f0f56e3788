#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "atoll/base/error.h"
#include "atoll/param_server/links.h"

namespace atl::param_server {

/// How the processes here listen.
struct ListenOptions {
  std::string listen = "127.0.0.1:0";  ///< HOST:PORT; port 0 picks one
  std::string advertise;               ///< under which others reach it; empty: the same
  LinkOptions link;
};

/// What a scheduler knows of its run, for those who look.
struct SchedulerStatus {
  std::int64_t workers = 0;  ///< that are connected
  std::int64_t servers = 0;  ///< that have slices
  std::int64_t views = 0;    ///< who has which slices has changed so often
  bool has_begun = false;    ///< a worker has said what the run is
  std::string why_failed;    ///< see Scheduler::why_failed
};

/// What a parameter server has done, for those who look.
struct ServerStatus {
  std::int64_t slices = 0;
  std::int64_t parameter_bytes = 0;  ///< of the values of its slices
  std::int64_t pushes = 0;           ///< that came
  std::int64_t pushed_bytes = 0;
  std::int64_t pulls = 0;
  std::int64_t lost_pushes = 0;  ///< that were acknowledged, and went with a server
  std::int64_t servers = 0;      ///< of the run, as it knows
};

/// A run's scheduler (scheduler.h) with its connections, on a thread of its own.
class SchedulerService {
 public:
  /// Listens when it returns; makes a secret that is missing. `dir`: where it keeps what it must
  /// not forget, so that another one on that directory goes on where this one was killed; empty:
  /// nowhere. With port 0 that one listens at the port of this one. Throws what open_listener() and
  /// SchedulerStore throw.
  explicit SchedulerService(const ListenOptions& options, const std::filesystem::path& dir = {});
  ~SchedulerService();
  std::string address() const;
  /// Whether the run has ended and all workers have left.
  bool is_finished() const;
  /// From any thread, as the others.
  SchedulerStatus status() const;
  std::optional<Error> failure() const;
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Where a server's slices are kept on disk.
struct DiskOptions {
  std::filesystem::path dir;  ///< empty: nowhere
  double every_seconds = 1;   ///< what came since the last write is lost with the process
};

/// A parameter server (server.h) with its connections, on a thread of its own.
class ServerService {
 public:
  /// Listens when it returns; reads what `disk` has. `scheduler`: its address.
  ServerService(const ListenOptions& options, const std::string& scheduler, const DiskOptions& disk,
                int threads);
  ~ServerService();
  std::string address() const;
  /// Whether the run has ended.
  bool is_finished() const;
  /// From any thread, as the others.
  ServerStatus status() const;
  std::optional<Error> failure() const;
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace atl::param_server
