#include "atoll/launch/probe.h"

#include <poll.h>
#include <sys/wait.h>

#include <atomic>
#include <thread>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/processes/process.h"
#include "atoll/launch/rank_processes.h"

namespace atl::launch {

namespace {

// Whether the host runs a command within some seconds; ssh is ended otherwise.
bool answers(const std::string& host) {
  constexpr int kTimeoutMs = 3000;
  try {
    Child ssh({.argv = ssh_command(host, "exit 0")});
    pollfd end = {.fd = ssh.pid_fd(), .events = POLLIN};
    ::poll(&end, 1, kTimeoutMs);
    int status = 0;
    return ssh.reap(status) && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  } catch (const Error&) {  // no process could be started; the host is probed again later
    return false;
  }
}

}  // namespace

struct HostProbe::State {
  std::thread thread;
  std::atomic<bool> finished{false};
  std::atomic<bool> cancelled{false};
  std::vector<std::string> answered;
};

HostProbe::HostProbe() : state_(std::make_unique<State>()) {}

HostProbe::~HostProbe() {
  state_->cancelled = true;
  if (state_->thread.joinable()) state_->thread.join();
}

void HostProbe::start(const std::vector<std::string>& hosts) {
  if (state_->thread.joinable()) return;
  state_->finished = false;
  state_->thread = std::thread([this, hosts] {
    for (const std::string& host : hosts) {
      if (!state_->cancelled && answers(host)) state_->answered.push_back(host);
    }
    state_->finished = true;
  });
}

bool HostProbe::done() const {
  return state_->thread.joinable() && state_->finished;
}

std::vector<std::string> HostProbe::take() {
  state_->thread.join();
  return std::exchange(state_->answered, {});
}

}  // namespace atl::launch
