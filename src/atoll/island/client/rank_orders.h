#pragma once

// What the rank that leads an island tells its other ranks to do of the exchanges, each with its
// part, and what they answer.

#include <cstdint>
#include <string>
#include <vector>

#include "atoll/island/client/exchange.h"
#include "atoll/island/protocol/protocol.h"

namespace atl::island {

/// The way from the rank that leads an island to its others, beside training. Safe to use from
/// several threads.
class OtherRanks {
 public:
  virtual ~OtherRanks() = default;
  /// Sends an order to all, which take them in order, and returns its number.
  virtual std::uint64_t send(std::string order, bool wants_answers) = 0;
  /// Waits until all have answered that one: by rank, from the second on. Throws Error(kPeer) when
  /// a rank is lost.
  virtual std::vector<std::string> answers(std::uint64_t number) = 0;
  /// From now on answers() throws instead of waiting: the leading rank ends.
  virtual void give_up() = 0;
};

/// An order; which members count goes by what it is.
struct RankOrder {
  enum class What : std::uint8_t {
    kOffer,       ///< the pseudo-gradient of outer step and fragment, with the codec; answered
    kReduce,      ///< `reduce`; answered
    kStopReduce,  ///< at once
    kSeal,        ///< all have prepared, and the result has this hash
    kSwap,        ///< OuterState::swap()
    kFetch,       ///< the fragment's state of this hash; answered
    kStopFetch,   ///< at once
    kReplace,     ///< what was fetched of the fragment is its state
    kReplaced,    ///< of all fragments: OuterState::set_outer_step()
    kUpload,      ///< RankExchange::upload()
  };
  What what = What::kStopReduce;
  std::int64_t outer_step = 0;
  int fragment = 0;
  StateHash hash = {};
  bool was_mine = false;  ///< kSwap: the pseudo-gradient is in it
  std::string codec = {};
  Stamp stamp = {};  ///< kReduce
  Reduce reduce = {};
  IslandId self = kNobody;
  Contacts contacts = {};
  std::vector<Source> sources = {};    ///< kFetch
  std::vector<StateHash> hashes = {};  ///< kUpload
  std::uint64_t connection = 0;        ///< the same
};

/// An answer.
struct RankAnswer {
  std::string error = {};  ///< the rank cannot go on; empty: it can
  ExchangeResult exchange = {};
  StateHash hash = {};               ///< what its part adds to it
  std::vector<double> squares = {};  ///< squares_of() its part of what was offered, or of the mean
  std::uint64_t sent_bytes = 0;      ///< RankExchange's, so far
  std::uint64_t received_bytes = 0;
};

/// The bytes of an order, or of an answer.
std::string encode(const RankOrder& order);
/// Throws Error(kDamaged) for anything else than encode()'s.
RankOrder decode_order(const std::string& bytes);
std::string encode(const RankAnswer& answer);
RankAnswer decode_answer(const std::string& bytes);

}  // namespace atl::island
