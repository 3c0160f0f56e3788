#include "atoll/launch/engines/slurm.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>

#include "atoll/base/error.h"

namespace atl::launch {

// Such a shell leads a session with a terminal, and gives each command a
// process group; a task without a terminal belongs to no such session.
bool is_in_shell() {
  if (::getpgrp() == ::getsid(0)) return false;
  const int terminal = ::open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);
  if (terminal >= 0) ::close(terminal);
  return terminal >= 0;
}

bool is_in_shell_of_task() {
  return std::getenv("SLURM_PTY_PORT") != nullptr && is_in_shell();
}

std::string first_slurm_host(const std::string& list) {
  const auto damaged = [&list] {
    return user_error("'{}' is no list of hosts as Slurm writes it; give --rendezvous", list);
  };
  const std::size_t end = list.find_first_of("[,");
  std::string prefix = list.substr(0, end);
  if (end == list.npos || list[end] == ',') {
    if (prefix.empty()) throw damaged();
    return prefix;
  }
  const std::size_t close = list.find(']', end);
  const std::size_t digits = list.find_first_of("-,]", end);
  if (close == list.npos || digits == end + 1) throw damaged();
  const std::size_t rest = list.find_first_of("[,", close);
  if (rest != list.npos && list[rest] == '[') throw damaged();  // n[1-2]x[3-4]: a grid of names
  return prefix + list.substr(end + 1, digits - end - 1) +
         list.substr(close + 1, rest == list.npos ? rest : rest - close - 1);
}

}  // namespace atl::launch
