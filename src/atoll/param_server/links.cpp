#include "atoll/param_server/links.h"

#include <algorithm>

namespace atl::param_server {

namespace {

constexpr int kFarewellMs = 2000;

}  // namespace

Links::Links(Mailbox& mailbox, std::string scheduler, LinkOptions options)
    : mailbox_(mailbox), scheduler_address_(std::move(scheduler)), options_(std::move(options)) {
  open(scheduler_, scheduler_address_, Mailbox::Letter::From::kScheduler, 0);
}

Links::~Links() = default;

void Links::open(Link& link, const std::string& address, Mailbox::Letter::From from,
                 std::uint64_t id) {
  using Kind = Mailbox::Letter::Kind;
  link.address = address;
  const auto put = [this, from, id](Kind kind, std::string text, bool is_final = false) {
    mailbox_.put(
        {.kind = kind, .from = from, .id = id, .text = std::move(text), .is_final = is_final});
  };
  link.connection = open_connection(
      address, options_,
      wire::Session::Events{
          .connected = [put] { put(Kind::kOpened, ""); },
          .received = [put](std::string frame) { put(Kind::kReceived, std::move(frame)); },
          .disconnected = [put](const std::string& why,
                                bool is_final) { put(Kind::kBroken, why, is_final); }});
}

void Links::follow(const std::vector<ServerEntry>& servers, const std::string& own_address) {
  const auto is_wanted = [&](ServerId id) {
    return std::any_of(servers.begin(), servers.end(),
                       [&](const ServerEntry& entry) { return entry.id == id; });
  };
  std::erase_if(servers_, [&](const auto& entry) { return !is_wanted(entry.first); });
  for (const ServerEntry& entry : servers) {
    if (entry.address == own_address || servers_.contains(entry.id)) continue;
    open(servers_[entry.id], entry.address, Mailbox::Letter::From::kServer, entry.id);
  }
}

void Links::send(Link& link, std::string frame) {
  if (!link.is_connected) return;
  link.kept.push_back(std::move(frame));
  send_kept(link);
}

void Links::send_kept(Link& link) {
  while (!link.kept.empty() && link.connection->send(link.kept.front())) link.kept.pop_front();
}

void Links::to_server(ServerId server, const Message& message) {
  const auto at = servers_.find(server);
  if (at != servers_.end()) send(at->second, encode(message));
}

void Links::flush() {
  send_kept(scheduler_);
  for (auto& [id, link] : servers_) send_kept(link);
}

bool Links::note(const Mailbox::Letter& letter) {
  Link* link = &scheduler_;
  if (letter.from == Mailbox::Letter::From::kServer) {
    const auto at = servers_.find(static_cast<ServerId>(letter.id));
    if (at == servers_.end()) return false;
    link = &at->second;
  }
  if (letter.kind == Mailbox::Letter::Kind::kReceived) return true;
  link->is_connected = letter.kind == Mailbox::Letter::Kind::kOpened;
  link->kept.clear();
  return true;
}

void Links::finish() {
  scheduler_.connection->finish(kFarewellMs);
}

}  // namespace atl::param_server
