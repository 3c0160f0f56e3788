#pragma once

#include <memory>
#include <string>
#include <vector>

namespace atl::launch {

/// Finds out in the background which hosts answer to ssh.
class HostProbe {
 public:
  HostProbe();
  ~HostProbe();
  HostProbe(const HostProbe&) = delete;
  HostProbe& operator=(const HostProbe&) = delete;

  /// Asks these; does nothing while those of before are still being asked.
  void start(const std::vector<std::string>& hosts);
  /// Whether there is an answer that was not taken.
  bool done() const;
  /// The hosts that answered.
  std::vector<std::string> take();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace atl::launch
