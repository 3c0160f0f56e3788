#include "atoll/base/terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace atl {

namespace {

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

int terminal_columns(int fd) {
  constexpr int kUsual = 80;
  if (::isatty(fd) != 1) return 0;
  winsize size = {};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsual;
}

bool wants_color(int fd) {
  const std::string_view terminal = environment("TERM");
  return ::isatty(fd) == 1 && environment("NO_COLOR").empty() && !terminal.empty() &&
         terminal != "dumb";
}

bool reader_is_gone(int fd) {
  pollfd writable = {.fd = fd, .events = POLLOUT, .revents = 0};
  if (::poll(&writable, 1, 0) != 1 || ::isatty(fd) == 1) return false;
  return (writable.revents & POLLERR) != 0;
}

void put_error(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace atl
