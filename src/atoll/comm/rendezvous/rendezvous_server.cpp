#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <thread>
#include <utility>

#include "atoll/comm/rendezvous/rendezvous.h"
#include "atoll/comm/rendezvous/rendezvous_wire.h"

namespace atl::comm {

using namespace rendezvous;

namespace {

/// A client: what it has sent of its next frame, and what it has not yet taken of its answers.
struct Client {
  Socket socket;
  Clock::time_point since = Clock::now();
  bool greeted = false;
  std::string in, out;
};

// Bytes of answers that a client has not read; a client with more is dropped.
constexpr std::size_t kMostAnswers = 4 * kLongestFrame;

}  // namespace

struct RendezvousServer::State {
  State(const std::string& a_host, int a_port, const Limits& the_limits)
      : host(a_host),
        limits(the_limits),
        listener(listen_on(a_host, a_port)),
        stop(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        thread([this] { serve(); }) {}
  ~State() {
    const std::uint64_t one = 1;
    // Cannot fail: the counter is zero.
    [[maybe_unused]] const ssize_t n = ::write(stop.fd(), &one, sizeof(one));
    thread.join();
  }

  void serve();
  void accept_all();
  /// Whether to keep the client.
  bool read(Client& client);
  bool handle(Client& client);
  bool answer(Client& client, std::string_view frame);
  bool flush(Client& client);
  Answer set(const std::string& key, std::string_view value);

  std::string host;
  Limits limits;
  Socket listener, stop;
  std::vector<Client> clients;
  std::map<std::string, std::string> store;
  std::size_t stored = 0;  // bytes
  std::thread thread;      // last: it uses the others
};

void RendezvousServer::State::serve() {
  std::vector<pollfd> polls;
  for (;;) {
    polls.clear();
    polls.push_back({stop.fd(), POLLIN, 0});
    // With all places taken, new connections wait in the system's queue.
    const bool full = clients.size() >= limits.connections;
    polls.push_back({listener.fd(), static_cast<short>(full ? 0 : POLLIN), 0});
    bool strangers = false;
    for (const Client& client : clients) {
      strangers |= !client.greeted;
      const int wants = POLLIN | (client.out.empty() ? 0 : POLLOUT);
      polls.push_back({client.socket.fd(), static_cast<short>(wants), 0});
    }
    if (::poll(polls.data(), polls.size(), strangers ? 100 : -1) < 0 && errno != EINTR) return;
    if (polls[0].revents != 0) return;
    const Clock::time_point now = Clock::now();
    const std::chrono::duration<double> patience(limits.handshake_s);
    std::vector<Client> kept;
    for (std::size_t i = 0; i < clients.size(); ++i) {
      Client& client = clients[i];
      bool keep = client.greeted || now - client.since < patience;
      if (keep && polls[i + 2].revents != 0) keep = read(client) && flush(client);
      if (keep) kept.push_back(std::move(client));
    }
    clients = std::move(kept);
    if (polls[1].revents != 0) accept_all();
  }
}

void RendezvousServer::State::accept_all() {
  while (clients.size() < limits.connections) {
    const int fd = ::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    clients.push_back({Socket(fd)});
  }
}

bool RendezvousServer::State::read(Client& client) {
  char bytes[16384];
  const ssize_t n = ::recv(client.socket.fd(), bytes, sizeof(bytes), 0);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  if (n == 0) return false;
  client.in.append(bytes, static_cast<std::size_t>(n));
  return handle(client);
}

bool RendezvousServer::State::handle(Client& client) {
  if (!client.greeted) {
    const std::string_view begin = std::string_view(client.in).substr(0, kHello.size());
    if (begin != kHello.substr(0, begin.size())) return false;
    if (begin.size() < kHello.size()) return true;
    client.greeted = true;
    client.in.erase(0, kHello.size());
    client.out += kHello;
  }
  while (client.in.size() >= 4) {
    const std::uint32_t length = read_length(client.in);
    if (length < 3 || length > kLongestFrame) return false;
    if (client.in.size() < 4 + std::size_t{length}) break;
    const std::string frame = client.in.substr(4, length);
    client.in.erase(0, 4 + std::size_t{length});
    if (!answer(client, frame)) return false;
  }
  return client.out.size() <= kMostAnswers;
}

bool RendezvousServer::State::answer(Client& client, std::string_view frame) {
  const std::size_t key_size =
      static_cast<unsigned char>(frame[1]) +
      (static_cast<std::size_t>(static_cast<unsigned char>(frame[2])) << 8);
  if (key_size == 0 || key_size > Rendezvous::kLongestKey || 3 + key_size > frame.size())
    return false;
  const std::string key(frame.substr(3, key_size));
  const std::string_view value = frame.substr(3 + key_size);
  std::string reply(1, static_cast<char>(Answer::kNothing));
  const auto found = store.find(key);
  switch (static_cast<Verb>(frame[0])) {
    case Verb::kSet:
      if (value.size() > Rendezvous::kLongestValue) return false;
      reply[0] = static_cast<char>(set(key, value));
      break;
    case Verb::kGet:
      if (found == store.end()) break;
      reply[0] = static_cast<char>(Answer::kFound);
      reply += found->second;
      break;
    case Verb::kRemove:
      if (found == store.end()) break;
      stored -= key.size() + found->second.size();
      store.erase(found);
      break;
    default:
      return false;
  }
  client.out += frame_of(reply);
  return true;
}

Answer RendezvousServer::State::set(const std::string& key, std::string_view value) {
  const auto found = store.find(key);
  const std::size_t before = found == store.end() ? 0 : key.size() + found->second.size();
  if (stored - before + key.size() + value.size() > limits.bytes) return Answer::kFull;
  stored = stored - before + key.size() + value.size();
  store[key] = value;
  return Answer::kFound;
}

bool RendezvousServer::State::flush(Client& client) {
  while (!client.out.empty()) {
    const ssize_t n =
        ::send(client.socket.fd(), client.out.data(), client.out.size(), MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    client.out.erase(0, static_cast<std::size_t>(n));
  }
  return true;
}

RendezvousServer::RendezvousServer(const std::string& host, int port, const Limits& limits)
    : state_(std::make_unique<State>(host, port, limits)) {}

RendezvousServer::~RendezvousServer() = default;

int RendezvousServer::port() const {
  return port_of(state_->listener);
}

std::string RendezvousServer::address() const {
  const bool six = state_->host.find(':') != std::string::npos;
  return fmt::format("tcp://{}{}{}:{}", six ? "[" : "", state_->host, six ? "]" : "", port());
}

}  // namespace atl::comm
