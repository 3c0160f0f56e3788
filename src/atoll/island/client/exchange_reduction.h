#pragma once

// One attempt of Exchange::reduce(). Only for exchange*.cpp.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "atoll/island/client/exchange.h"

namespace atl::island {

/// One attempt at a mean. Pieces arrive on the transfers' threads; the thread that brings the last
/// part of a piece sums it.
class Exchange::Reduction {
 public:
  Reduction(Exchange& exchange, const Stamp& stamp, const Reduce& reduce, IslandId self,
            const Contacts& contacts, std::int64_t elements, std::span<float> mean,
            const std::stop_token& cancel, const OnPiece& on_piece)
      : exchange_(exchange),
        stamp_(stamp),
        reduce_(reduce),
        self_(self),
        contacts_(contacts),
        mean_(mean),
        cancel_(cancel),
        on_piece_(on_piece),
        codec_(exchange.codecs_.of(reduce.schedule.codec)),
        sum_codec_(exchange.codecs_.of_sums(reduce.schedule.codec)),
        elements_(elements),
        pieces_(num_pieces(elements_)),
        mine_(pieces_of(elements_, range_of(exchange.options_.place))),
        received_(reduce.participants.size()),
        arrived_(pieces_),
        arrivals_(reduce.participants.size()) {}

  ExchangeResult run();

 private:
  using Clock = std::chrono::steady_clock;
  const std::vector<Participant>& participants() const { return reduce_.participants; }
  // A rank that others fetch from: its address, and the pieces that it has.
  struct Endpoint {
    std::string address;
    PieceRange pieces;
  };
  parallel::ElementRange range_of(const ShardPlace& place) const {
    return shard_range(elements_, exchange_.options_.state_vectors, place);
  }
  std::vector<Endpoint> endpoints(std::size_t rank) const;
  // Whether every island sums everything, rather than each its part of the pieces.
  bool everybody_sums() const;
  // Whether this rank does.
  bool sums_piece(std::size_t piece) const;
  void place_pieces();
  bool contributes() const { return rank_of(self_) >= 0; }
  int rank_of(IslandId island) const;
  std::vector<bool> all_but(const std::function<bool(std::size_t piece)>& wanted) const;
  void take_own();
  void publish_sums();
  void wait_until_asked();
  void asked();
  void give_own();
  using OnAsked = std::function<void()>;
  void fetch_delta(std::size_t rank, const Endpoint& from, const OnAsked& on_asked);
  void put_delta();
  void fetch_sums(std::size_t rank, const Endpoint& from, const OnAsked& on_asked);
  void arrived(std::size_t piece);
  void sum(std::size_t piece);
  std::span<float> mean_of(std::size_t piece) const;
  void made(std::size_t piece);
  void came_from(std::size_t rank, std::size_t bytes);
  std::vector<LinkMeasurement> links() const;
  void fail(std::optional<IslandId> island, const std::string& why);
  void guard(IslandId island, const std::function<void()>& action);
  wire::BlobClient& remote(std::size_t rank, const Endpoint& from) const;

  Exchange& exchange_;
  const Stamp& stamp_;
  const Reduce& reduce_;
  IslandId self_;
  const Contacts& contacts_;
  std::span<float> mean_;
  const std::stop_token& cancel_;
  const OnPiece& on_piece_;
  const compress::Codec& codec_;
  const compress::Codec& sum_codec_;
  std::int64_t elements_;
  std::size_t pieces_;                            // of all ranks of an island
  PieceRange mine_;                               // of this rank
  std::vector<std::vector<std::byte>> received_;  // by rank among the participants
  std::vector<std::size_t> received_at_;  // where a piece that is summed here lies in each of these
  std::shared_ptr<const EncodedDelta> own_;
  std::vector<std::atomic<std::size_t>> arrived_;  // participants, by piece
  std::shared_ptr<std::vector<std::byte>> sums_;   // encoded, where each sums a part
  std::mutex mutex_;
  std::condition_variable_any asked_;
  std::size_t num_to_ask_ = 0;
  // What came from each participant.
  struct Arrivals {
    std::uint64_t bytes = 0;
    Clock::time_point first, last;
  };
  std::vector<Arrivals> arrivals_;  // by rank; under the mutex
  Clock::time_point begun_ = Clock::now();
  ExchangeResult result_;
};

}  // namespace atl::island
