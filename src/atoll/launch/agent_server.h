#pragma once

// The server of a launch to which agents on other machines offer places for ranks.

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "atoll/launch/hosts.h"
#include "atoll/launch/offer.h"
#include "atoll/launch/watched.h"

namespace atl::launch {

/// What a server is told.
struct AgentServerOptions {
  std::string host;                    ///< name or address of this machine to listen on
  std::vector<std::string> agreement;  ///< agreement_lines() of the launch
  /// Whether a host of that name is reached in another way; an agent must not be called like it.
  std::function<bool(const std::string& name)> is_taken;
  std::size_t max_pending = 64;  ///< connections that have not said who they are
  std::chrono::milliseconds handshake_timeout{5000};  ///< until they have
};

/// Takes offers on a free TCP port, and starts ranks in the places offered. It does not encrypt or
/// authenticate; a connection costs it at most kLongestOffer bytes of memory. An agent
/// with other settings, another version, or the name of another agent is refused with the reason,
/// and a warning. One thread; nothing waits for an agent but for seconds when its network is full.
class AgentServer {
 public:
  /// Throws Error(kUser) when the host is not this machine's.
  explicit AgentServer(AgentServerOptions options);
  ~AgentServer();
  AgentServer(const AgentServer&) = delete;
  AgentServer& operator=(const AgentServer&) = delete;

  int port() const;
  /// Adds what becomes readable when poll_agents() has something to do.
  void watch(std::vector<pollfd>& polls) const;
  /// Accepts agents, reads what they have sent, and removes those that are gone. Does not wait.
  void poll_agents();

  /// Agents that stay, in the order in which they came, each with how many places it now has.
  std::vector<Host> agents() const;
  /// Whether an agent of that name has ever joined.
  bool knows(const std::string& name) const;
  /// The names of agents that have come, with all their places, since it was last called.
  std::vector<std::string> take_new_agents();
  /// The numbers of running ranks (RankOrder::number, or rank) whose agents want to leave.
  std::vector<int> leaving() const;

  /// Starts a rank in a free place of that agent. What it returns has ended already (is_lost) when
  /// there is none, or the agent is gone.
  std::unique_ptr<WatchedProcess> start(const std::string& name, const RankOrder& order);
  /// Kills the running rank of that number.
  void end(int number);
  /// Tells all agents that the launch is over, with its exit code and why.
  void bye(int exit_code, const std::string& reason);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace atl::launch
