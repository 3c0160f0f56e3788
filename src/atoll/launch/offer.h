#pragma once

// What an agent of `atoll launch --join` and the launch that takes its ranks say to each other
// (docs/decisions/0015). One connection is one place for a rank.
//
// The agent begins with kOfferMagic and a frame of four bytes of length (little-endian) and an
// Offer; all that follows, both ways, are lines. The launch answers "ok" or "no REASON"; then it
// says "start ..." (a RankOrder), "signal N", "bye CODE REASON". The agent sends what the rank
// writes, and lines of its own: kEndMark and how the rank ended, or kLeaveMark alone.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/comm/rendezvous/rendezvous_wire.h"
#include "atoll/launch/watched.h"

namespace atl::launch {

inline constexpr std::string_view kOfferMagic = "atl-join";
inline constexpr std::string_view kEndMark =
    "\x1e"
    "end ";
inline constexpr std::string_view kLeaveMark =
    "\x1e"
    "leave";
/// Bytes of an offer and of a line, at most.
inline constexpr std::size_t kLongestOffer = std::size_t{64} << 10;
inline constexpr std::size_t kLongestLine = std::size_t{64} << 10;

/// One place that an agent offers.
struct Offer {
  std::string name;  ///< of the agent, as a host is called
  std::string id;    ///< drawn at random by the agent, to tell it from another of the same name
  int slots = 1;     ///< how many places it offers, each on a connection of its own
  std::vector<std::string> agreement;  ///< agreement_lines() there
};

/// An offer as the text of its frame.
std::string format_offer(const Offer& offer);
/// Throws Error(kDamaged) that says what is wrong with it.
Offer parse_offer(std::string_view text);

/// What a rank is told beside the call of `atoll train`, wherever it is started.
struct RankOrder {
  int number = -1;      ///< which process of a group whose ranks change; -1: they do not
  bool joins = false;   ///< the others train already
  int rank = 0;         ///< of a group whose ranks do not change
  int ranks = 0;        ///< so is this
  int generation = 0;   ///< of its world, or of the first rank list that it may be in
  std::string backend;  ///< by its name; empty, in flags alone: the default

  bool operator==(const RankOrder&) const = default;
};

/// The flags of that order.
std::vector<std::string> rank_flags(const RankOrder& order, const std::string& rendezvous);

/// "start ...", without newline. An order names its backend.
std::string format_order(const RankOrder& order);
/// Nothing when the line is no order, or one with numbers or a name that cannot be. Whether there
/// is a backend of that name the rank finds out, which says so.
std::optional<RankOrder> parse_order(std::string_view line);

/// The line, without newline, that tells how a rank ended.
std::string format_end(const ProcessEnd& end);
/// Nothing when it is another line.
std::optional<ProcessEnd> parse_end(std::string_view line);

/// Where an agent finds the port at which a launch takes offers: a key of its rendezvous.
std::string agent_server_key();
/// Where it finds the rendezvous of the launch: a key of a directory that both see.
std::string address_key();

/// Makes a connection end within seconds when the host at its other end is gone.
void notice_loss(const comm::rendezvous::Socket& socket);

/// Takes the first line out of `text`, without its newline; nothing when none is whole.
std::optional<std::string> take_line(std::string& text);

}  // namespace atl::launch
