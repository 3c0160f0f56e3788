#pragma once

// Where ranks go, and the command line that each of them is started with.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "atoll/launch/hosts.h"
#include "atoll/launch/offer.h"
#include "atoll/launch/process_group.h"

namespace atl::launch {

/// The host of each of `num_ranks` ranks (0: as many as there are slots), hosts filled in their
/// order. An empty name is this machine. Throws Error(kUser) when there are fewer slots; `path` is
/// the hostfile's, for the message.
std::vector<std::string> place_ranks(const std::vector<Host>& hosts, int num_ranks,
                                     const std::string& path);

/// `atoll train`, or another command, as it will be called for every rank.
struct TrainCall {
  std::string program;                 ///< path of atoll, the same on every host
  std::string directory;               ///< where it runs, the same on every host
  std::vector<std::string> arguments;  ///< recipe and overrides
  std::string command = "train";
};

/// This program, here, on that recipe (empty: none).
TrainCall train_call(const std::string& recipe, const std::vector<std::string>& overrides);

/// What a rank is told beside the call that meets others at a rendezvous.
struct RendezvousPoint {
  std::string rendezvous;
  int generation = 0;
  std::string backend;  ///< its name; empty: that which a rank takes by default
  int first = 0;        ///< the first rank that is started here
  int ranks = 0;        ///< of the run; 0: as many as are started here
};

/// Starts a rank where only its caller knows how: nothing for a host that it does not know.
using StartElsewhere =
    std::function<std::optional<RankProcess>(const std::string& host, const RankOrder& order)>;

/// One process a rank, here, through ssh, or `elsewhere`, which meet at a rendezvous.
std::vector<RankProcess> rendezvous_processes(const TrainCall& call,
                                              const std::vector<std::string>& hosts,
                                              const RendezvousPoint& point,
                                              const StartElsewhere& elsewhere = {});

/// One process of a group that may change, on `host` (empty: here).
RankProcess elastic_process(const TrainCall& call, const std::string& host,
                            const std::string& rendezvous, const RankOrder& order);

/// One mpirun for all ranks of `backend`.
std::vector<RankProcess> mpirun_processes(const TrainCall& call,
                                          const std::vector<std::string>& hosts,
                                          const std::string& backend);

/// The words of that call.
std::vector<std::string> train_command_line(const TrainCall& call);

/// The command line that runs `command`, in the words of a POSIX shell, on another host. It asks
/// for no password and notices within seconds when the host is gone.
std::vector<std::string> ssh_command(const std::string& host, const std::string& command);

/// The words as one command for a POSIX shell, quoted where needed.
std::string shell_command(const std::vector<std::string>& words);

/// The path of the program that is running.
std::string this_program();

}  // namespace atl::launch
