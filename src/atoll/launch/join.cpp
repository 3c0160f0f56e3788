#include "atoll/launch/join.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/base/processes/process.h"
#include "atoll/base/processes/stop_signals.h"
#include "atoll/base/quantity.h"

namespace atl::launch {

namespace {

using comm::rendezvous::Clock;
using comm::rendezvous::RendezvousAddress;
using comm::rendezvous::Socket;

constexpr std::chrono::milliseconds kLookAgain{100};
// A rank writes little: a launch that reads nothing for so long is gone.
constexpr std::chrono::seconds kSendTimeout{10};
constexpr std::chrono::seconds kAnswerTimeout{30};
constexpr Clock::duration kTellTimeout = std::chrono::seconds(5);

Clock::duration seconds(double count) {
  constexpr double kYear = 3.2e7;
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(std::min(count, kYear)));
}

std::string whole_address(const std::string& address) {
  return address.find("://") == address.npos ? "tcp://" + address : address;
}

// A launch that was found: its address, and the port at which it takes offers.
struct Found {
  std::string rendezvous;
  RendezvousAddress server;
};

Found ask(const std::string& rendezvous, double timeout_s) {
  const std::unique_ptr<comm::Rendezvous> store = comm::open_rendezvous(rendezvous, timeout_s);
  Found found = {.rendezvous = rendezvous, .server = comm::rendezvous::parse_tcp(rendezvous)};
  // A launch publishes it a moment after its rendezvous is up.
  std::optional<std::string> told = store->get(agent_server_key());
  const Clock::time_point deadline = Clock::now() + std::min(seconds(timeout_s), kTellTimeout);
  while (!told && Clock::now() < deadline) {
    std::this_thread::sleep_for(kLookAgain);
    told = store->get(agent_server_key());
  }
  const std::string port = told.value_or("");
  std::uint16_t number = 0;
  const auto [stopped, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (port.empty() || error != std::errc() || stopped != port.data() + port.size()) {
    throw user_error(
        "--join={}: what answers there takes no ranks; it must be an `atoll launch` of this "
        "version "
        "that was started with --rendezvous",
        rendezvous);
  }
  found.server.port = number;
  return found;
}

// A directory may still have the address of an earlier launch, or none yet.
Found find_launch(const JoinOptions& options) {
  const std::string address = whole_address(options.address);
  if (!address.starts_with("file://")) return ask(address, options.find_timeout_s);
  const Clock::time_point deadline = Clock::now() + seconds(options.find_timeout_s);
  for (std::string problem;;) {
    const auto told = comm::open_rendezvous(address, options.find_timeout_s)->get(address_key());
    try {
      if (told) return ask(*told, 0);
      problem = "no launch has left its address there";
    } catch (const Error& error) {
      problem = error.what();
    }
    if (Clock::now() >= deadline) throw user_error("--join={}: {}", address, problem);
    std::this_thread::sleep_for(kLookAgain);
  }
}

std::string draw_id() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

// One place for a rank: its connection to the launch, and the rank's process.
struct Place {
  Socket connection;
  std::string in;
  std::unique_ptr<Child> child;
  LineReader errors, reports;
};

class Joiner {
 public:
  Joiner(const JoinOptions& options, SignalFd& signals)
      : options_(options), signals_(signals), found_(find_launch(options)) {}

  int run() {
    offer();
    while (!over_) {
      wait();
      while (const int signal = signals_.next()) leave(signal);
      for (Place& place : places_) {
        hear_launch(place);
        relay(place);
      }
      if (signal_ != 0 && (num_running() == 0 || Clock::now() >= leaves_by_)) break;
    }
    return conclude();
  }

 private:
  // One after the other, so that a refusal is told once.
  void offer() {
    const std::string text = format_offer({.name = options_.name,
                                           .id = draw_id(),
                                           .slots = options_.slots,
                                           .agreement = options_.agreement});
    if (text.size() > kLongestOffer) {
      throw user_error("the settings have {} bytes, of which an offer takes {}", text.size(),
                       kLongestOffer);
    }
    const Clock::time_point deadline = Clock::now() + seconds(options_.find_timeout_s);
    for (int slot = 0; slot < options_.slots; ++slot) {
      Place place;
      place.connection = comm::rendezvous::connect_to(found_.server, deadline);
      notice_loss(place.connection);
      const std::string who = "the launch at " + found_.rendezvous;
      comm::rendezvous::send_all(place.connection,
                                 std::string(kOfferMagic) + comm::rendezvous::frame_of(text),
                                 Clock::now() + kSendTimeout, who);
      hear_answer(place, who);
      places_.push_back(std::move(place));
    }
    log::info("offering {} to the launch at {} as {}", counted(options_.slots, "rank"),
              found_.rendezvous, options_.name);
  }

  void hear_answer(Place& place, const std::string& who) const {
    const Clock::time_point deadline = Clock::now() + kAnswerTimeout;
    std::optional<std::string> line;
    while (!(line = take_line(place.in)) && place.in.size() < kLongestLine) {
      place.in += comm::rendezvous::receive_all(place.connection, 1, deadline, who);
    }
    if (line == "ok") return;
    constexpr std::string_view kNo = "no ";
    if (line && line->starts_with(kNo)) {
      throw user_error("{} does not take these ranks: {}", who, line->substr(kNo.size()));
    }
    throw user_error("{} does not answer an offer; it is of another version of atoll", who);
  }

  int num_running() const {
    return static_cast<int>(std::count_if(
        places_.begin(), places_.end(), [](const Place& place) { return place.child != nullptr; }));
  }

  void wait() {
    std::vector<pollfd> polls = {{.fd = signals_.fd(), .events = POLLIN}};
    for (Place& place : places_) {
      polls.push_back({.fd = place.connection.fd(), .events = POLLIN});
      if (!place.child) continue;
      polls.push_back({.fd = place.child->pid_fd(), .events = POLLIN});
      for (const Fd* fd : {&place.child->errors(), &place.child->reports()}) {
        if (fd->open()) polls.push_back({.fd = fd->get(), .events = POLLIN});
      }
    }
    int timeout_ms = -1;
    if (signal_ != 0) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(leaves_by_ - Clock::now());
      timeout_ms = static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 3600 * 1000));
    }
    ::poll(polls.data(), polls.size(), timeout_ms);
  }

  void leave(int signal) {
    if (signals_.only_saves(signal)) {  // one rank tells the others
      for (const Place& place : places_) signal_child(place, signal);
      return;
    }
    const bool again = std::exchange(signal_, signal) != 0;
    if (again) {
      leaves_by_ = Clock::now();
      return;
    }
    leaves_by_ = Clock::now() + seconds(options_.leave_timeout_s);
    if (num_running() > 0) log::info("leaving the launch after this step");
    for (Place& place : places_) tell(place, kLeaveMark);
  }

  void tell(Place& place, std::string_view line) {
    if (over_) return;
    try {
      comm::rendezvous::send_all(place.connection, std::string(line) + '\n',
                                 Clock::now() + kSendTimeout, "the launch");
    } catch (const Error& error) {
      lose(error.what());
    }
  }

  void lose(const std::string& how) {
    if (!over_) over_ = Over{.is_lost = true, .reason = how};
  }

  void hear_launch(Place& place) {
    char bytes[4096];
    while (!over_) {
      const ssize_t got = ::recv(place.connection.fd(), bytes, sizeof bytes, MSG_DONTWAIT);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) return;
      if (got <= 0) {
        lose("its connection has ended");
        return;
      }
      place.in.append(bytes, static_cast<std::size_t>(got));
      while (const std::optional<std::string> line = take_line(place.in)) obey(place, *line);
      if (place.in.size() > kLongestLine) lose("it says what no launch says");
    }
  }

  void obey(Place& place, const std::string& line) {
    constexpr std::string_view kBye = "bye ", kSignal = "signal ";
    int number = 0;
    const auto number_after = [&](std::string_view word) {
      const char* const end = line.data() + line.size();
      return std::from_chars(line.data() + word.size(), end, number);
    };
    if (const std::optional<RankOrder> order = parse_order(line)) {
      start(place, *order);
    } else if (line.starts_with(kSignal) && number_after(kSignal).ec == std::errc()) {
      signal_child(place, number);
    } else if (line.starts_with(kBye)) {
      const auto [stopped, error] = number_after(kBye);
      if (error != std::errc()) return lose("it says what no launch says");
      const char* const end = line.data() + line.size();
      over_ = Over{.exit_code = number, .reason = {std::min(stopped + 1, end), end}};
    } else {
      lose("it says what no launch says");
    }
  }

  void start(Place& place, const RankOrder& order) {
    if (place.child) return lose("it starts two ranks in one place");
    std::vector<std::string> argv = train_command_line(options_.call);
    for (std::string& flag : rank_flags(order, found_.rendezvous)) argv.push_back(std::move(flag));
    argv.push_back(fmt::format("--report-fd={}", kReportFd));
    place.errors = {};
    place.reports = {};
    place.child = std::make_unique<Child>(
        ChildOptions{.argv = std::move(argv), .shows_output = true, .has_report_pipe = true});
    log::info("a rank begins as process {}", place.child->pid());
  }

  static void signal_child(const Place& place, int signal) {
    if (!place.child) return;
    if (signal == SIGKILL) {
      place.child->kill();
    } else if (std::find(kStopSignals.begin(), kStopSignals.end(), signal) != kStopSignals.end()) {
      place.child->signal(signal);
    }
  }

  // Passes the rank's output to the launch, and after that how it ended.
  void relay(Place& place) {
    if (!place.child) return;
    const LineTaker pass_on = [&](std::string_view line) { tell(place, line); };
    place.errors.read(place.child->errors(), pass_on);
    place.reports.read(place.child->reports(), pass_on);
    int status = 0;
    if (!place.child->reap(status)) return;
    place.errors.read(place.child->errors(), pass_on);
    place.reports.read(place.child->reports(), pass_on);
    place.errors.finish(pass_on);
    place.reports.finish(pass_on);
    log::info("the rank of process {} has ended", place.child->pid());
    place.child.reset();
    tell(place, format_end({.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                            .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0}));
  }

  int conclude() {
    for (Place& place : places_) place.child.reset();  // kills what is left
    constexpr int kSignalled = 128, kMistake = 2;
    if (signal_ != 0) return kSignalled + signal_;
    if (over_->is_lost) {
      throw make_error(ErrorKind::kPeer, "the launch at {} is gone: {}", found_.rendezvous,
                       over_->reason);
    }
    if (over_->exit_code == kMistake) throw Error(ErrorKind::kUser, over_->reason);
    if (over_->exit_code != 0 && over_->exit_code < kSignalled) {
      throw make_error(ErrorKind::kPeer, "the launch at {} has failed: {}", found_.rendezvous,
                       over_->reason);
    }
    log::info("the launch at {} is over", found_.rendezvous);
    return over_->exit_code;
  }

  // How the launch ended.
  struct Over {
    bool is_lost = false;
    int exit_code = 0;
    std::string reason;
  };

  const JoinOptions& options_;
  SignalFd& signals_;
  Found found_;
  std::vector<Place> places_;
  std::optional<Over> over_;
  int signal_ = 0;  // that asked this agent to leave
  Clock::time_point leaves_by_;
};

}  // namespace

int join_launch(const JoinOptions& options, SignalFd& signals) {
  return Joiner(options, signals).run();
}

}  // namespace atl::launch
