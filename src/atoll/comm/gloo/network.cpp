#include "atoll/comm/gloo/network.h"

//
#include <gloo/transport/tcp/device.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <exception>
#include <utility>

#include "atoll/comm/gloo/loopback.h"
#include "atoll/comm/gloo/store.h"

namespace atl::comm::gloo_net {

namespace {

constexpr std::uint64_t kSlot = 1, kGoodbyeSlot = 2;
constexpr double kGoodbyeSeconds = 10;

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<long>(std::clamp(seconds, 0.001, 3.2e7) * 1000));
}

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace

GlooNetwork::GlooNetwork(const GlooOptions& gloo, double timeout_s)
    : rank_(gloo.rank), size_(gloo.size), timeout_s_(timeout_s) {
  rendezvous_ = open_rendezvous(gloo.rendezvous, timeout_s);
  const std::string gathering =
      gather(*rendezvous_, gloo.rank, gloo.size, gloo.generation, timeout_s);
  failure_key_ = gathering + "/failure";
  connect(gloo, gathering);
}

void GlooNetwork::connect(const GlooOptions& gloo, const std::string& gathering) {
  ::gloo::transport::tcp::attr attr;
  attr.iface = gloo.interface;
  attr.hostname = gloo.address;
  if (attr.iface.empty() && attr.hostname.empty()) attr.hostname = rendezvous_->local_address();
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
        rank_, where, error.what());
  }
  const std::vector<int> before = open_descriptors();
  try {
    context_ = std::make_unique<::gloo::rendezvous::Context>(rank_, size_);
    context_->setTimeout(milliseconds(timeout_s_));
    Store store(*rendezvous_, gathering, timeout_s_);
    context_->connectFullMesh(store, device);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw PeerError(
        -1, fmt::format("rank {} at {} could not be connected to the other {} ranks: {}", rank_,
                        where, size_ - 1, error.what()));
  }
  speed_up_loopback(before);
}

GlooNetwork::~GlooNetwork() {
  if (!ending_ && std::uncaught_exceptions() == 0) say_goodbye();
}

// Gloo closes its connections so that what the others have not read yet is lost.
void GlooNetwork::say_goodbye() {
  const Clock::time_point end = Clock::now() + milliseconds(std::min(kGoodbyeSeconds, timeout_s_));
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
  message = {peer, sends, bytes, context_->createUnboundBuffer(data, bytes)};
  if (sends) {
    message.buffer->send(peer, slot, 0, bytes);
  } else {
    message.buffer->recv(peer, slot, 0, bytes);
  }
}

void GlooNetwork::post(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) {
  int peer = -1;
  try {
    const std::lock_guard lock(mutex_);
    messages_.clear();
    for (const Incoming& in : incoming) add(false, peer = in.from, in.data, in.bytes, kSlot);
    for (const Outgoing& out : outgoing)
      add(true, peer = out.to, const_cast<void*>(out.data), out.bytes, kSlot);
  } catch (const std::exception& error) {
    lose(peer,
         fmt::format("the connection to rank {} is broken: it is gone ({})", peer, error.what()));
  }
}

void GlooNetwork::wait_for(Message& message, Clock::time_point deadline) {
  bool whole = false;
  try {
    const auto left = milliseconds(std::chrono::duration<double>(deadline - Clock::now()).count());
    whole = message.sends ? message.buffer->waitSend(left) : message.buffer->waitRecv(left);
  } catch (const std::exception& error) {
    if (Clock::now() >= deadline)
      lose(message.peer, fmt::format("rank {} did not {} {} bytes within {} s", message.peer,
                                     message.sends ? "take" : "send", message.bytes, timeout_s_));
    lose(message.peer, fmt::format("the connection to rank {} is broken: it is gone ({})",
                                   message.peer, error.what()));
  }
  if (!whole) throw PeerError(rank_, "this rank ends with an error");
}

void GlooNetwork::finish() {
  const Clock::time_point deadline = Clock::now() + milliseconds(timeout_s_);
  for (Message& message : messages_) wait_for(message, deadline);
}

// A rank whose connections all close may be one that has heard of somebody else's end: whoever saw
// it first has written it down.
void GlooNetwork::lose(int rank, const std::string& why) {
  std::string text = why;
  try {
    const std::lock_guard lock(mutex_);
    if (const auto failure = rendezvous_->get(failure_key_)) {
      const std::size_t colon = failure->find(':');
      rank = std::atoi(failure->c_str());
      if (colon != std::string::npos) text = failure->substr(colon + 1);
    }
  } catch (const Error&) {
    // The rendezvous may have ended with its host; then what we saw is all we know.
  }
  give_up(rank, text);
  throw PeerError(rank, text);
}

void GlooNetwork::give_up(int rank, const std::string& why) noexcept {
  const std::lock_guard lock(mutex_);
  if (std::exchange(ending_, true)) return;
  try {
    if (!rendezvous_->get(failure_key_))
      rendezvous_->set(failure_key_, fmt::format("{}:{}", rank, why.substr(0, 4096)));
  } catch (const std::exception&) {
  }
  try {
    for (Message& message : messages_)
      message.sends ? message.buffer->abortWaitSend() : message.buffer->abortWaitRecv();
    context_->closeConnections();
  } catch (const std::exception&) {
  }
}

}  // namespace atl::comm::gloo_net
