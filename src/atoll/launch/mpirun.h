#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/launch/group_outcome.h"
#include "atoll/launch/hosts.h"

namespace atl::launch {

/// What mpirun is asked for.
struct MpirunOptions {
  int ranks = 1;
  std::vector<Host> hosts;  ///< filled in this order; empty: this host
  bool is_root = false;     ///< Open MPI refuses root unless told otherwise
};

/// The command line of Open MPI's mpirun that runs `command` on so many ranks. Ranks are not bound
/// to cores: each uses several threads, which share a host's cores evenly.
std::vector<std::string> mpirun_command(const MpirunOptions& options,
                                        const std::vector<std::string>& command);

/// Throws Error(kUser) that names the package when there is no mpirun in PATH; `backend` needs it.
void require_mpirun(const std::string& backend);

/// Separates mpirun's own messages from the lines that its ranks write to standard error.
class MpirunMessages {
 public:
  /// True for a line that mpirun has written.
  bool takes(std::string_view line);
  /// The rank that mpirun says was killed.
  std::optional<RankEnd> dead_rank() const { return dead_; }
  /// Its last message, in one line.
  std::string text() const { return text_; }

 private:
  bool inside_ = false;  // a message, which stands between two rulers
  std::string text_;
  std::optional<RankEnd> dead_;
};

}  // namespace atl::launch
