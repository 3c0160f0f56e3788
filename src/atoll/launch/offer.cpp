#include "atoll/launch/offer.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/launch/backend_name.h"
#include "atoll/launch/hosts.h"

namespace atl::launch {

namespace {

constexpr int kMostSlots = 1024;
constexpr std::size_t kLongestName = 64;
constexpr std::size_t kLongestId = 64;

// The numbers of a line, when it has exactly as many as are wanted.
template <std::size_t N>
std::optional<std::array<std::int64_t, N>> numbers_of(std::string_view text) {
  std::array<std::int64_t, N> numbers = {};
  for (std::size_t i = 0; i < N; ++i) {
    const std::size_t space = std::min(text.find(' '), text.size());
    const char* const end = text.data() + space;
    const auto [stopped, error] = std::from_chars(text.data(), end, numbers[i]);
    if (error != std::errc() || stopped != end) return std::nullopt;
    if ((space == text.size()) != (i + 1 == N)) return std::nullopt;
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  return numbers;
}

bool is_between(std::int64_t value, std::int64_t least, std::int64_t most) {
  return value >= least && value <= most;
}

constexpr std::int64_t kMostRanks = 65536;
constexpr std::int64_t kMostGenerations = std::int64_t{1} << 30;
constexpr std::string_view kStart = "start ";

}  // namespace

std::string format_offer(const Offer& offer) {
  std::string text = fmt::format("{}\n{}\n{}\n", offer.name, offer.id, offer.slots);
  for (const std::string& line : offer.agreement) text += line + '\n';
  return text;
}

Offer parse_offer(std::string_view text) {
  std::istringstream lines{std::string(text)};
  Offer offer;
  std::string slots;
  std::getline(lines, offer.name);
  std::getline(lines, offer.id);
  std::getline(lines, slots);
  if (offer.name.size() > kLongestName || !is_host_name(offer.name)) {
    throw damaged_error(
        "an agent's offer has the name '{}'; letters, digits, '.', '-', '_' make one",
        offer.name.substr(0, kLongestName));
  }
  if (offer.id.empty() || offer.id.size() > kLongestId) {
    throw damaged_error("the offer of {} has an id of {} bytes", offer.name, offer.id.size());
  }
  const auto number = numbers_of<1>(slots);
  if (!number || !is_between(number->front(), 1, kMostSlots)) {
    throw damaged_error("the offer of {} is for '{}' ranks; from 1 to {}", offer.name,
                        slots.substr(0, kLongestName), kMostSlots);
  }
  offer.slots = static_cast<int>(number->front());
  for (std::string line; std::getline(lines, line);) offer.agreement.push_back(std::move(line));
  return offer;
}

std::vector<std::string> rank_flags(const RankOrder& order, const std::string& rendezvous) {
  std::vector<std::string> flags;
  if (order.number >= 0) {
    flags.push_back(fmt::format("--member={}", order.number));
  } else {
    flags = {fmt::format("--rank={}", order.rank), fmt::format("--ranks={}", order.ranks)};
  }
  flags.push_back("--rendezvous=" + rendezvous);
  flags.push_back(fmt::format("--generation={}", order.generation));
  if (order.joins) flags.emplace_back("--joins");
  if (!order.backend.empty()) flags.push_back("--backend=" + order.backend);
  return flags;
}

std::string format_order(const RankOrder& order) {
  ATOLL_CHECK(is_backend_name(order.backend), "an order for backend '{}'", order.backend);
  return fmt::format("{}{} {} {} {} {} {}", kStart, order.number, order.joins ? 1 : 0, order.rank,
                     order.ranks, order.generation, order.backend);
}

std::optional<RankOrder> parse_order(std::string_view line) {
  if (!line.starts_with(kStart)) return std::nullopt;
  line.remove_prefix(kStart.size());
  const std::size_t space = line.rfind(' ');
  if (space == line.npos || !is_backend_name(line.substr(space + 1))) return std::nullopt;
  const auto numbers = numbers_of<5>(line.substr(0, space));
  if (!numbers) return std::nullopt;
  const auto [number, joins, rank, ranks, generation] = *numbers;
  const bool is_fixed = number < 0;
  if (!is_between(number, -1, kMostGenerations) || !is_between(joins, 0, 1) ||
      !is_between(ranks, is_fixed ? 1 : 0, kMostRanks) ||
      !is_between(rank, 0, is_fixed ? ranks - 1 : 0) ||
      !is_between(generation, 0, kMostGenerations)) {
    return std::nullopt;
  }
  return RankOrder{.number = static_cast<int>(number),
                   .joins = joins == 1,
                   .rank = static_cast<int>(rank),
                   .ranks = static_cast<int>(ranks),
                   .generation = static_cast<int>(generation),
                   .backend = std::string(line.substr(space + 1))};
}

std::string format_end(const ProcessEnd& end) {
  return fmt::format("{}{} {}", kEndMark, end.exit_code, end.signal);
}

std::optional<ProcessEnd> parse_end(std::string_view line) {
  if (!line.starts_with(kEndMark)) return std::nullopt;
  const auto numbers = numbers_of<2>(line.substr(kEndMark.size()));
  constexpr std::int64_t kMostCode = 255, kMostSignal = 64;
  if (!numbers || !is_between((*numbers)[0], 0, kMostCode) ||
      !is_between((*numbers)[1], 0, kMostSignal)) {
    return std::nullopt;
  }
  return ProcessEnd{.exit_code = static_cast<int>((*numbers)[0]),
                    .signal = static_cast<int>((*numbers)[1])};
}

std::string agent_server_key() {
  return "launch/server";
}

std::string address_key() {
  return "launch/address";
}

void notice_loss(const comm::rendezvous::Socket& socket) {
  const int on = 1, idle_s = 2, interval_s = 1, probes = 4, unanswered_ms = 6000;
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
  ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms, sizeof unanswered_ms);
  ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

std::optional<std::string> take_line(std::string& text) {
  const std::size_t end = text.find('\n');
  if (end == text.npos) return std::nullopt;
  std::string line = text.substr(0, end);
  text.erase(0, end + 1);
  return line;
}

}  // namespace atl::launch
