#include "atoll/launch/engines/pmi.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "atoll/base/error.h"

namespace atl::launch {

namespace {

constexpr std::size_t kLongestAnswer = 4096;
constexpr const char* kKey = "atoll-rendezvous";

// The value of `key` in "cmd=get_result rc=0 value=x".
std::optional<std::string> word_of(std::string_view line, std::string_view key) {
  while (!line.empty()) {
    const std::size_t end = std::min(line.find(' '), line.size());
    const std::string_view word = line.substr(0, end);
    if (word.size() > key.size() && word.starts_with(key) && word[key.size()] == '=') {
      return std::string(word.substr(key.size() + 1));
    }
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return std::nullopt;
}

class PmiClient {
 public:
  PmiClient(int socket, double timeout_s)
      : socket_(socket),
        timeout_s_(timeout_s),
        deadline_(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                     std::chrono::duration<double>(timeout_s))) {}

  // Sends a command and returns the answer, which begins with "cmd=`answer`" and has no bad rc.
  std::string ask(const std::string& command, const std::string& answer) {
    send(command + "\n");
    std::string line = read_line();
    const bool is_well = word_of(line, "rc").value_or("0") == "0";
    if (word_of(line, "cmd") != answer || !is_well) {
      throw make_error(ErrorKind::kPeer,
                       "the PMI of the launcher answers '{}' to '{}'; give "
                       "--rendezvous=tcp://HOST:PORT, or start the ranks by Open MPI's mpirun",
                       line, command);
    }
    return line;
  }

 private:
  using Clock = std::chrono::steady_clock;

  void wait(short what) const {
    for (;;) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now());
      pollfd one = {socket_, what, 0};
      const int ready = ::poll(&one, 1, static_cast<int>(std::max<long>(left.count(), 0)));
      if (ready > 0) return;
      if (ready == 0) {
        throw make_error(ErrorKind::kPeer,
                         "the PMI of the launcher has not answered within {} s; other ranks may "
                         "not have started",
                         timeout_s_);
      }
      if (errno != EINTR) throw lost();
    }
  }

  static Error lost() {
    return make_error(ErrorKind::kPeer,
                      "the connection to the launcher's PMI is lost; it has ended, or PMI_FD of "
                      "another process is set here");
  }

  void send(std::string_view text) const {
    while (!text.empty()) {
      wait(POLLOUT);
      const ssize_t n = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
      if (n > 0) text.remove_prefix(static_cast<std::size_t>(n));
      if (n < 0 && errno != EINTR && errno != EAGAIN) throw lost();
    }
  }

  std::string read_line() {
    for (;;) {
      const std::size_t end = read_.find('\n');
      if (end != read_.npos) {
        std::string line = read_.substr(0, end);
        read_.erase(0, end + 1);
        return line;
      }
      if (read_.size() > kLongestAnswer) throw lost();
      wait(POLLIN);
      char buffer[512];
      const ssize_t n = ::read(socket_, buffer, sizeof buffer);
      if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) throw lost();
      if (n > 0) read_.append(buffer, static_cast<std::size_t>(n));
    }
  }

  int socket_;
  double timeout_s_;
  Clock::time_point deadline_;
  std::string read_;
};

}  // namespace

std::string share_by_pmi(int socket, bool is_first, const std::string& text, double timeout_s) {
  PmiClient pmi(socket, timeout_s);
  pmi.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init");
  const std::optional<std::string> space =
      word_of(pmi.ask("cmd=get_my_kvsname", "my_kvsname"), "kvsname");
  if (!space) throw make_error(ErrorKind::kPeer, "the PMI of the launcher names no key space");
  if (is_first) {
    pmi.ask(fmt::format("cmd=put kvsname={} key={} value={}", *space, kKey, text), "put_result");
  }
  pmi.ask("cmd=barrier_in", "barrier_out");
  const std::optional<std::string> value = word_of(
      pmi.ask(fmt::format("cmd=get kvsname={} key={}", *space, kKey), "get_result"), "value");
  // A process that has said hello and not farewell would be taken for a crashed one at its end.
  pmi.ask("cmd=finalize", "finalize_ack");
  if (!value) throw make_error(ErrorKind::kPeer, "the PMI of the launcher lost what rank 0 put");
  return *value;
}

std::string share_by_pmi(bool is_first, const std::string& text, double timeout_s) {
  const char* const given = std::getenv("PMI_FD");
  const std::string_view digits = given == nullptr ? "" : given;
  int socket = -1;
  const auto [stopped, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), socket);
  if (error != std::errc() || stopped != digits.data() + digits.size() || socket < 0) {
    throw user_error("the environment variable PMI_FD is '{}', which is no file; unset it", digits);
  }
  return share_by_pmi(socket, is_first, text, timeout_s);
}

}  // namespace atl::launch
