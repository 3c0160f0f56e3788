#pragma once

// The backends there are: how ranks reach each other. Each is an entry in backend.cpp, or is added
// by an extension; whoever needs to know something about backends asks here.

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <list>
#include <memory>
#include <string>

#include "atoll/comm/world.h"

namespace atl::launch {

/// How the ranks of a world come together.
enum class Bootstrap : std::uint8_t {
  kThreads,     ///< they are threads of one process, and need nothing
  kMpirun,      ///< mpirun or a PMI starts their processes, and tells each which rank it is
  kRendezvous,  ///< their processes are told rank and size, and meet at a rendezvous
};

/// What a process is told of its rank before its world is open. Under mpirun it may know nothing.
struct RankPlace {
  int rank = 0;
  int size = 1;
  std::string rendezvous;        ///< "tcp://HOST:PORT" or "file:///DIRECTORY"
  int generation = 0;            ///< how often ranks have come together there before
  double connect_timeout_s = 0;  ///< to come together; 0: as long as a collective
};

/// A way in which ranks reach each other: all that the program knows of it.
struct Backend {
  using Open = std::unique_ptr<comm::World>(const RankPlace& place,
                                            const comm::WorldOptions& options);
  using Run = void(int num_ranks, const comm::WorldOptions& options,
                   const std::function<void(comm::World& world)>& body);

  std::string name;  ///< "gloo": --backend=gloo
  Bootstrap bootstrap = Bootstrap::kRendezvous;
  bool spans_hosts = false;  ///< ranks may be on several hosts
  /// The ranks that are left when some die, or come, may open another world at the same rendezvous
  /// with a higher generation. Of kRendezvous alone.
  bool can_regroup = false;
  /// Why this program was built without it and what to do, in one line; "" where it has it. Empty:
  /// every program has it.
  std::function<std::string()> why_not_built = {};
  /// Opens the world of the rank that this process is. Not of kThreads.
  std::function<Open> open = {};
  /// Runs `body` on so many threads, each a rank, as comm::run_threads() does. Of kThreads alone.
  std::function<Run> run = {};

  bool is_threads() const { return bootstrap == Bootstrap::kThreads; }
  bool is_started_by_mpirun() const { return bootstrap == Bootstrap::kMpirun; }
  bool meets_at_rendezvous() const { return bootstrap == Bootstrap::kRendezvous; }
};

/// All backends, in the order in which texts list them.
const std::list<Backend>& backends();

/// Adds one after the others, before any thread asks for backends. Its name must be new.
void add_backend(Backend backend);
/// Takes one that was added out again, when nobody uses it any more: for tests.
void remove_backend(const std::string& name);

/// The one that --backend=`name` means; throws Error(kUser) that lists all for another.
const Backend& find_backend(const std::string& name);
/// The same for `atoll launch`, which refuses ranks that are threads too.
const Backend& find_launched_backend(const std::string& name);
/// The first of those that come together so: what is taken where no name is given.
const Backend& default_backend(Bootstrap bootstrap);

/// Their names, those of the first Bootstrap first: "gloo, tcp or mpi".
std::string backend_names(std::initializer_list<Bootstrap> bootstraps);
/// What --help says of --backend where ranks may be threads.
std::string backend_help();
/// What --help says of it for `atoll launch`.
std::string launched_backend_help();

}  // namespace atl::launch
