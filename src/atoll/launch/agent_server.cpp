#include "atoll/launch/agent_server.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <set>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/launch/rank_main.h"

namespace atl::launch {

namespace {

using comm::rendezvous::Clock;
using comm::rendezvous::Socket;

constexpr std::size_t kMostConnections = 4096;
constexpr std::size_t kPrefix = kOfferMagic.size() + 4;
// An order fits any socket buffer, so a send waits only for an agent that reads nothing.
constexpr std::chrono::seconds kOrderTimeout{5};

// One connection: a place for a rank.
struct Place {
  enum class Stage : std::uint8_t { kPending, kFree, kRunning, kEnded, kGone };

  Socket socket;
  Clock::time_point since = Clock::now();
  Stage stage = Stage::kPending;
  std::string in;
  Offer offer;
  bool leaves = false;
  bool is_watched = false;  // a WatchedProcess for its rank exists
  int number = -1;
  ProcessEnd end;

  bool is_agents() const { return stage != Stage::kPending && stage != Stage::kGone; }

  void close() {
    if (stage == Stage::kRunning) {
      stage = Stage::kEnded;
      constexpr int kFailed = 255;
      end = {.exit_code = kFailed, .is_lost = true};
    } else if (stage != Stage::kEnded) {
      stage = Stage::kGone;
    }
    socket = Socket();
  }

  // Called when the end of its rank has been reported.
  void settle() {
    if (stage == Stage::kEnded) stage = socket ? Stage::kFree : Stage::kGone;
  }

  void send(const std::string& line) {
    if (!socket) return;
    try {
      comm::rendezvous::send_all(socket, line + '\n', Clock::now() + kOrderTimeout, offer.name);
    } catch (const Error&) {
      close();
    }
  }

  // Reads what has come, up to `most` bytes of unread lines; whether there may be more.
  bool receive(std::size_t most) {
    char bytes[16384];
    while (socket && in.size() < most) {
      const std::size_t room = std::min(sizeof bytes, most - in.size());
      const ssize_t got = ::recv(socket.fd(), bytes, room, MSG_DONTWAIT);
      if (got > 0) {
        in.append(bytes, static_cast<std::size_t>(got));
        continue;
      }
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) return false;
      is_over = true;
      return false;
    }
    return static_cast<bool>(socket);
  }

  // Carries out the agent's own lines; gives the lines of its rank to `take`.
  void hear(const LineTaker& take) {
    constexpr int kRounds = 16;  // so that other connections are read too
    bool is_more = true;
    for (int round = 0; is_more && round < kRounds; ++round) {
      is_more = receive(2 * kLongestLine);
      while (const std::optional<std::string> line = take_line(in)) obey(*line, take);
      if (in.size() > kLongestLine) take(std::exchange(in, {}));
    }
    if (is_over && socket) close();
  }

  void obey(const std::string& line, const LineTaker& take) {
    if (line == kLeaveMark) {
      leaves = true;
    } else if (const std::optional<ProcessEnd> how = parse_end(line)) {
      if (stage != Stage::kRunning) return;
      end = *how;
      stage = is_watched ? Stage::kEnded : Stage::kFree;
    } else if (stage == Stage::kRunning) {
      take(line);
    }
  }

  bool is_over = false;  // the other side has closed
};

void ignore(std::string_view /*line*/) {}

// The rank that runs in a place, until it has ended. It shares the place with the server, which may
// go first.
class PlacedProcess final : public WatchedProcess {
 public:
  explicit PlacedProcess(std::shared_ptr<Place> place) : place_(std::move(place)) {
    place_->is_watched = true;
  }
  ~PlacedProcess() override {
    if (!place_) return;
    if (place_->stage == Place::Stage::kRunning) kill();
    place_->is_watched = false;
    release();
  }

  pid_t pid() const override { return 0; }
  bool running() const override { return place_ != nullptr; }
  void watch(std::vector<pollfd>& polls) const override {
    if (place_ && place_->socket) polls.push_back({.fd = place_->socket.fd(), .events = POLLIN});
  }
  void listen(const LineTaker& take) override {
    if (place_ && place_->stage == Place::Stage::kRunning) place_->hear(take);
  }
  void signal(int number, bool /*again*/) override {
    if (place_) place_->send(fmt::format("signal {}", number));
  }
  void kill() override { signal(SIGKILL, false); }
  std::optional<ProcessEnd> reap(const LineTaker& take) override {
    listen(take);
    if (!place_ || place_->stage != Place::Stage::kEnded) return std::nullopt;
    const ProcessEnd end = place_->end;
    place_->is_watched = false;
    release();
    return end;
  }

 private:
  void release() {
    place_->settle();
    place_.reset();
  }

  std::shared_ptr<Place> place_;
};

}  // namespace

struct AgentServer::State {
  explicit State(AgentServerOptions the_options)
      : options(std::move(the_options)), listener(comm::rendezvous::listen_on(options.host, 0)) {}

  void accept_all();
  void read_offer(Place& place);
  void admit(Place& place, Offer offer);
  void refuse(Place& place, const std::string& reason);
  int count(const std::string& id) const;

  AgentServerOptions options;
  Socket listener;
  std::vector<std::shared_ptr<Place>> places;
  std::vector<std::string> new_agents;
  std::set<std::string> names;  // of all that were ever here
};

void AgentServer::State::accept_all() {
  const auto is_pending = [](const auto& place) { return place->stage == Place::Stage::kPending; };
  auto num_pending =
      static_cast<std::size_t>(std::count_if(places.begin(), places.end(), is_pending));
  // With many connections open, new ones wait in the system's queue.
  while (num_pending < options.max_pending && places.size() < kMostConnections) {
    const int fd = ::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    auto place = std::make_shared<Place>();
    place->socket = Socket(fd);
    notice_loss(place->socket);
    places.push_back(std::move(place));
    ++num_pending;
  }
}

// Reads from a connection that has not sent its offer yet, which must be there in time.
void AgentServer::State::read_offer(Place& place) {
  place.receive(kPrefix + kLongestOffer);
  const std::string_view heard = place.in;
  if (heard.substr(0, kOfferMagic.size()) != kOfferMagic.substr(0, heard.size())) {
    place.close();
    return;
  }
  if (heard.size() >= kPrefix) {
    const std::size_t length = comm::rendezvous::read_length(heard.substr(kOfferMagic.size(), 4));
    if (length > kLongestOffer) {
      refuse(place, fmt::format("an offer of {} bytes; there may be {}", length, kLongestOffer));
      return;
    }
    if (heard.size() >= kPrefix + length) {
      const std::string text(heard.substr(kPrefix, length));
      place.in.erase(0, kPrefix + length);
      try {
        admit(place, parse_offer(text));
      } catch (const Error& error) {
        refuse(place, error.what());
      }
      return;
    }
  }
  if (place.is_over || Clock::now() - place.since > options.handshake_timeout) place.close();
}

void AgentServer::State::admit(Place& place, Offer offer) {
  if (options.is_taken(offer.name)) {
    throw user_error("the launch has a host called {} already; give another --name", offer.name);
  }
  for (const auto& other : places) {
    if (other->is_agents() && other->offer.name == offer.name && other->offer.id != offer.id) {
      throw user_error("there is an agent called {} already; give another --name", offer.name);
    }
  }
  check_agreement(offer.agreement, options.agreement, "the agent " + offer.name);
  if (count(offer.id) >= offer.slots) {
    throw damaged_error("{} offers more ranks than the {} it told of", offer.name, offer.slots);
  }
  place.offer = std::move(offer);
  place.offer.agreement.clear();  // not needed any more, and long
  place.stage = Place::Stage::kFree;
  names.insert(place.offer.name);
  place.send("ok");
  if (count(place.offer.id) == place.offer.slots) new_agents.push_back(place.offer.name);
}

void AgentServer::State::refuse(Place& place, const std::string& reason) {
  log::warning("an agent was not taken: {}", reason);
  place.send("no " + reason);
  place.close();
}

int AgentServer::State::count(const std::string& id) const {
  return static_cast<int>(std::count_if(places.begin(), places.end(), [&](const auto& place) {
    return place->is_agents() && place->offer.id == id;
  }));
}

AgentServer::AgentServer(AgentServerOptions options)
    : state_(std::make_unique<State>(std::move(options))) {}

AgentServer::~AgentServer() = default;

int AgentServer::port() const {
  return comm::rendezvous::port_of(state_->listener);
}

void AgentServer::watch(std::vector<pollfd>& polls) const {
  polls.push_back({.fd = state_->listener.fd(), .events = POLLIN});
  for (const auto& place : state_->places) {
    if (place->socket) polls.push_back({.fd = place->socket.fd(), .events = POLLIN});
  }
}

void AgentServer::poll_agents() {
  state_->accept_all();
  // By index, because admitting or refusing an agent changes the list.
  for (std::size_t i = 0; i < state_->places.size(); ++i) {
    Place& place = *state_->places[i];
    if (place.stage == Place::Stage::kPending) state_->read_offer(place);
    const bool is_alone = place.stage == Place::Stage::kRunning && !place.is_watched;
    if (place.stage == Place::Stage::kFree || is_alone) place.hear(ignore);
    if (place.stage == Place::Stage::kEnded && !place.is_watched) place.settle();
  }
  std::erase_if(state_->places,
                [](const auto& place) { return place->stage == Place::Stage::kGone; });
}

std::vector<Host> AgentServer::agents() const {
  std::vector<Host> agents;
  for (const auto& place : state_->places) {
    if (!place->is_agents() || place->leaves || !place->socket) continue;
    const auto known = std::find_if(agents.begin(), agents.end(), [&](const Host& agent) {
      return agent.name == place->offer.name;
    });
    if (known != agents.end()) {
      ++known->slots;
    } else {
      agents.push_back({.name = place->offer.name, .slots = 1});
    }
  }
  return agents;
}

bool AgentServer::knows(const std::string& name) const {
  return state_->names.count(name) > 0;
}

std::vector<std::string> AgentServer::take_new_agents() {
  return std::exchange(state_->new_agents, {});
}

std::vector<int> AgentServer::leaving() const {
  std::vector<int> numbers;
  for (const auto& place : state_->places) {
    if (place->leaves && place->stage == Place::Stage::kRunning) numbers.push_back(place->number);
  }
  return numbers;
}

std::unique_ptr<WatchedProcess> AgentServer::start(const std::string& name,
                                                   const RankOrder& order) {
  for (const auto& place : state_->places) {
    const bool is_free = place->stage == Place::Stage::kFree && !place->leaves;
    if (!is_free || place->offer.name != name) continue;
    place->stage = Place::Stage::kRunning;
    place->number = order.number >= 0 ? order.number : order.rank;
    place->send(format_order(order));
    return std::make_unique<PlacedProcess>(place);
  }
  const auto nowhere = std::make_shared<Place>();
  nowhere->stage = Place::Stage::kRunning;
  nowhere->close();
  return std::make_unique<PlacedProcess>(nowhere);
}

void AgentServer::end(int number) {
  for (const auto& place : state_->places) {
    if (place->stage == Place::Stage::kRunning && place->number == number) {
      place->send(fmt::format("signal {}", SIGKILL));
    }
  }
}

void AgentServer::bye(int exit_code, const std::string& reason) {
  for (const auto& place : state_->places) {
    if (place->is_agents()) place->send(fmt::format("bye {} {}", exit_code, reason));
  }
}

}  // namespace atl::launch
