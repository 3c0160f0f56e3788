#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace atl::e2e {

/// Two networks with a cable between them, for the processes that this thread starts. Needs root.
class Networks {
 public:
  Networks() {
    home_ = now();
    works_ = ::unshare(CLONE_NEWNET) == 0;
    if (!works_) return;
    here_ = now();
    works_ = run("ip link set lo up") && ::unshare(CLONE_NEWNET) == 0;
    if (!works_) return;
    there_ = now();
    works_ = run("ip link set lo up") && run("ip link add over type veth peer name back") &&
             run("ip addr add 10.97.3.2/24 dev over") && run("ip link set over up") &&
             run(fmt::format("ip link set back netns /proc/{}/fd/{}", ::getpid(), here_));
    enter(here_);
    works_ = works_ && run("ip addr add 10.97.3.1/24 dev back") && run("ip link set back up");
    enter(home_);
  }
  ~Networks() {
    enter(home_);
    for (const int fd : {home_, here_, there_}) ::close(fd);
  }
  Networks(const Networks&) = delete;
  Networks& operator=(const Networks&) = delete;

  static constexpr const char* kHere = "10.97.3.1";
  static constexpr const char* kThere = "10.97.3.2";

  bool works() const { return works_; }
  void enter_here() const { enter(here_); }
  void enter_there() const { enter(there_); }
  /// Lets so much through each way; what is more waits in a queue of so many bytes.
  bool limit(int kbit_per_second, int queue_bytes) const {
    const auto one_way = [&](const char* end) {
      return run(fmt::format("tc qdisc add dev {} root tbf rate {}kbit burst 16kb limit {}", end,
                             kbit_per_second, queue_bytes));
    };
    enter_here();
    const bool is_limited = one_way("back");
    enter_there();
    const bool both_are = is_limited && one_way("over");
    enter(home_);
    return both_are;
  }

 private:
  static int now() { return ::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC); }
  static bool run(const std::string& command) {
    return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
  }
  static void enter(int network) { ::setns(network, CLONE_NEWNET); }

  int home_ = -1, here_ = -1, there_ = -1;
  bool works_ = false;
};

}  // namespace atl::e2e
