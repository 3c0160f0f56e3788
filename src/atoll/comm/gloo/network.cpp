#include "atoll/comm/gloo/network.h"

//
#include <gloo/transport/tcp/device.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <exception>
#include <optional>
#include <utility>

#include "atoll/comm/gloo/loopback.h"
#include "atoll/comm/gloo/store.h"
#include "atoll/comm/peer_error.h"

namespace atl::comm::gloo_net {

namespace {

constexpr std::uint64_t kGoodbyeSlot = 1, kSizeSlot = 2, kProbeSlot = 3, kFirstDataSlot = 4;

// Gloo matches messages by slot. It ends the process when a message is longer than expected, and
// does not report a shorter one. So messages of different sizes have different slots.
std::uint64_t slot_of(std::size_t bytes) {
  return kFirstDataSlot + bytes;
}
// More bytes than any message may have.
constexpr int kBitsOfChannel = 48;
constexpr double kGoodbyeSeconds = 10;
// How often a rank that waits looks whether the others still live.
constexpr auto kTick = std::chrono::milliseconds(200);
// Longer than any timeout of ours: a wait of Gloo's that times out breaks all connections.
constexpr auto kNever = std::chrono::hours(24 * 365);

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<long>(std::clamp(seconds, 0.001, 3.2e7) * 1000));
}

/// What Gloo says, without the place in its source.
std::string words_of(const std::exception& error) {
  const std::string_view text = error.what();
  const std::size_t end = text.starts_with("[") ? text.find("] ") : std::string_view::npos;
  return std::string(end == std::string_view::npos ? text : text.substr(end + 2));
}

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace

GlooNetwork::GlooNetwork(const GlooOptions& gloo, double timeout_s)
    : setup_(std::make_shared<Setup>()), rank_(gloo.rank), size_(gloo.size) {
  const double connect_timeout_s = gloo.connect_timeout_s > 0 ? gloo.connect_timeout_s : timeout_s;
  setup_->timeout_s = timeout_s;
  setup_->rendezvous = for_threads(open_rendezvous(gloo.rendezvous, connect_timeout_s));
  const std::string rendezvous_id =
      gather(*setup_->rendezvous, gloo.rank, gloo.size, gloo.generation, connect_timeout_s);
  setup_->failure_key = rendezvous_id + "/failure";
  connect(gloo, rendezvous_id, connect_timeout_s);
  ticker_ = std::thread([this] { tick(); });
}

GlooNetwork::GlooNetwork(std::shared_ptr<Setup> setup, int number)
    : setup_(std::move(setup)),
      number_(number),
      rank_(setup_->context->rank),
      size_(setup_->context->size) {
  ticker_ = std::thread([this] { tick(); });
}

// Between a pair Gloo matches by slot alone, so a channel need not know its members.
std::unique_ptr<Network> GlooNetwork::open_network(int number, std::span<const int> /*members*/) {
  return std::make_unique<GlooNetwork>(setup_, number);
}

std::uint64_t GlooNetwork::slot(std::uint64_t of_channel) const {
  return of_channel + (static_cast<std::uint64_t>(number_) << kBitsOfChannel);
}

void GlooNetwork::connect(const GlooOptions& gloo, const std::string& rendezvous_id,
                          double connect_timeout_s) {
  ::gloo::transport::tcp::attr attr;
  attr.iface = gloo.interface;
  attr.hostname = gloo.address;
  if (attr.iface.empty() && attr.hostname.empty())
    attr.hostname = setup_->rendezvous->local_address();
  if (attr.iface.empty() && attr.hostname.empty()) attr.hostname = host_name();
  const std::string where =
      attr.hostname.empty() ? "interface " + attr.iface : "address " + attr.hostname;
  std::shared_ptr<::gloo::transport::Device> device;
  try {
    device = ::gloo::transport::tcp::CreateDevice(attr);
  } catch (const std::exception& error) {
    throw user_error(
        "rank {} cannot be reached at {}: {}; give an address or interface of this "
        "host",
        rank_, where, words_of(error));
  }
  const std::vector<int> before = open_descriptors();
  try {
    setup_->context = std::make_unique<::gloo::rendezvous::Context>(rank_, size_);
    setup_->context->setTimeout(milliseconds(connect_timeout_s));
    Store store(*setup_->rendezvous, rendezvous_id, connect_timeout_s);
    setup_->context->connectFullMesh(store, device);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw PeerError(
        -1, fmt::format("rank {} at {} could not be connected to the other {} ranks: {}", rank_,
                        where, size_ - 1, words_of(error)));
  }
  speed_up_loopback(before);
}

GlooNetwork::~GlooNetwork() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_one();
  ticker_.join();
  if (number_ == 0 && !ending_ && std::uncaught_exceptions() == 0) say_goodbye();
}

// Gloo closes its connections so that what the others have not read yet is lost.
void GlooNetwork::say_goodbye() {
  const Clock::time_point end =
      Clock::now() + milliseconds(std::min(kGoodbyeSeconds, setup_->timeout_s));
  std::vector<char> words(static_cast<std::size_t>(size_));
  char word = 0;
  try {
    messages_.clear();
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      add(false, peer, &words[static_cast<std::size_t>(peer)], 1, kGoodbyeSlot);
      add(true, peer, &word, 1, kGoodbyeSlot);
    }
    for (Message& message : messages_) {
      const auto left = milliseconds(std::chrono::duration<double>(end - Clock::now()).count());
      message.sends ? message.buffer->waitSend(left) : message.buffer->waitRecv(left);
    }
  } catch (const std::exception&) {
    // Somebody ended otherwise. There is nobody left to tell.
  }
  messages_.clear();
}

std::size_t GlooNetwork::piece_bytes() const {
  return std::size_t{4} << 20;
}

void GlooNetwork::add(bool sends, int peer, void* data, std::size_t bytes, std::uint64_t slot) {
  if (bytes == 0) return;
  Message& message = messages_.emplace_back();
  message = {peer, sends, bytes, setup_->context->createUnboundBuffer(data, bytes)};
  if (sends) {
    message.buffer->send(peer, this->slot(slot), 0, bytes);
  } else {
    message.buffer->recv(peer, this->slot(slot), 0, bytes);
  }
}

bool GlooNetwork::run(const Collective& collective) {
  // The others have compared their calls before anything else moves.
  sizes_compared_ = collective.op == Op::kExchange;
  return false;
}

void GlooNetwork::add_sizes(std::span<const Outgoing> outgoing,
                            std::span<const Incoming> incoming) {
  incoming_.assign(incoming.begin(), incoming.end());
  own_sizes_.clear();
  for (const Outgoing& out : outgoing) own_sizes_.push_back(out.bytes);
  their_sizes_.assign(incoming.size(), 0);
  for (std::size_t i = 0; i < incoming.size(); ++i)
    add(false, incoming[i].from, &their_sizes_[i], sizeof(std::uint64_t), kSizeSlot);
  for (std::size_t i = 0; i < outgoing.size(); ++i)
    add(true, outgoing[i].to, &own_sizes_[i], sizeof(std::uint64_t), kSizeSlot);
}

void GlooNetwork::compare_sizes() {
  for (std::size_t i = 0; i < incoming_.size(); ++i) {
    const Incoming& in = incoming_[i];
    if (their_sizes_[i] == in.bytes) continue;
    lose(in.from, fmt::format("rank {} sends {} bytes where rank {} expects {}", in.from,
                              their_sizes_[i], rank_, in.bytes));
  }
}

void GlooNetwork::post(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) {
  int peer = -1;
  try {
    const std::lock_guard lock(mutex_);
    messages_.clear();
    incoming_.clear();
    if (sizes_compared_) add_sizes(outgoing, incoming);
    for (const Incoming& in : incoming)
      add(false, peer = in.from, in.data, in.bytes, slot_of(in.bytes));
    for (const Outgoing& out : outgoing)
      add(true, peer = out.to, const_cast<void*>(out.data), out.bytes, slot_of(out.bytes));
  } catch (const std::exception& error) {
    lose(peer, fmt::format("the connection to rank {} is broken: it is gone ({})", peer,
                           words_of(error)));
  }
}

// Gloo sometimes knows that a connection is broken and does not end the wait for a buffer of it. So
// waits are short, and the state of the connection is asked for in between.
void GlooNetwork::tick() {
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, kTick, [this] { return stopping_; })) {
    if (waited_for_ == nullptr) continue;
    waited_for_->sends ? waited_for_->buffer->abortWaitSend()
                       : waited_for_->buffer->abortWaitRecv();
  }
}

bool GlooNetwork::wait_a_while(Message& message) {
  const auto wait_for_whom = [this](Message* whom) {
    const std::lock_guard lock(mutex_);
    if (ending_) throw PeerError(rank_, "this rank ends with an error");
    waited_for_ = whom;
  };
  wait_for_whom(&message);
  bool whole = false;
  try {
    whole = message.sends ? message.buffer->waitSend(kNever) : message.buffer->waitRecv(kNever);
  } catch (const std::exception& error) {
    {
      const std::lock_guard lock(mutex_);
      waited_for_ = nullptr;
    }
    lose(message.peer, fmt::format("the connection to rank {} is broken: it is gone ({})",
                                   message.peer, words_of(error)));
  }
  wait_for_whom(nullptr);
  return whole;
}

void GlooNetwork::look_after(const Message& message, int looks) {
  std::optional<std::string> failure;
  if (looks % 4 == 0) {
    const std::lock_guard lock(mutex_);
    try {
      failure = setup_->rendezvous->get(setup_->failure_key);
    } catch (const Error&) {
      // It may end before its ranks.
    }
  }
  if (failure) lose(message.peer, "");
  // Nobody will ever receive this message. It is sent seldom, because the peer keeps each.
  if ((looks & (looks - 1)) != 0) return;
  char nothing = 0;
  try {
    setup_->context->createUnboundBuffer(&nothing, 1)->send(message.peer, slot(kProbeSlot), 0, 1);
  } catch (const std::exception& error) {
    lose(message.peer, fmt::format("the connection to rank {} is broken: it is gone ({})",
                                   message.peer, words_of(error)));
  }
}

void GlooNetwork::wait_for(Message& message, Clock::time_point deadline) {
  for (int looks = 1; !wait_a_while(message); ++looks) {
    look_after(message, looks);
    if (Clock::now() >= deadline)
      lose(message.peer,
           fmt::format("rank {} did not {} {} bytes within {} s", message.peer,
                       message.sends ? "take" : "send", message.bytes, setup_->timeout_s));
  }
}

void GlooNetwork::finish() {
  const Clock::time_point deadline = Clock::now() + milliseconds(setup_->timeout_s);
  // The sizes that come are first among the messages.
  for (std::size_t i = 0; i < messages_.size(); ++i) {
    wait_for(messages_[i], deadline);
    if (i + 1 == incoming_.size()) compare_sizes();
  }
}

// A closed connection may be the consequence of another rank's end. The rank that saw the cause
// first has noted it at the rendezvous.
void GlooNetwork::lose(int rank, const std::string& why) {
  std::string text = why;
  try {
    const std::lock_guard lock(mutex_);
    if (const auto failure = setup_->rendezvous->get(setup_->failure_key)) {
      const std::size_t colon = failure->find(':');
      rank = std::atoi(failure->c_str());
      if (colon != std::string::npos) text = failure->substr(colon + 1);
    }
  } catch (const Error&) {
    // The rendezvous may have ended with its host. Then only the closed connection is known.
  }
  give_up(rank, text);
  throw PeerError(rank, text);
}

void GlooNetwork::give_up(int rank, const std::string& why) noexcept {
  const std::lock_guard lock(mutex_);
  if (std::exchange(ending_, true)) return;
  try {
    if (!setup_->rendezvous->get(setup_->failure_key))
      setup_->rendezvous->set(setup_->failure_key, fmt::format("{}:{}", rank, why.substr(0, 4096)));
  } catch (const std::exception&) {
  }
  try {
    for (Message& message : messages_)
      message.sends ? message.buffer->abortWaitSend() : message.buffer->abortWaitRecv();
    setup_->context->closeConnections();
  } catch (const std::exception&) {
  }
}

}  // namespace atl::comm::gloo_net
