#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "atoll/island/client/exchange.h"
#include "atoll/island/client/outer_codecs.h"
#include "atoll/island/client/shard.h"
#include "atoll/island/outer/state.h"
#include "atoll/island/protocol/protocol.h"
#include "atoll/wire/access_token.h"
#include "atoll/wire/blob_store.h"
#include "atoll/wire/server.h"

namespace atl::island {

/// What a rank of an island needs to exchange its part.
struct RankExchangeOptions {
  ShardPlace place;
  std::string coordinator;                        ///< HOST:PORT
  std::string listen;                             ///< address_of_rank(); empty: it only calls out
  std::string advertise;                          ///< how others reach it; empty: `listen`
  std::optional<std::filesystem::path> identity;  ///< see wire::ServerOptions
  std::optional<std::filesystem::path> secret = {};
  /// Where the newest list of revoked certificates that was ever seen is kept.
  std::optional<std::filesystem::path> kept_list = {};
  std::string relay_token, peer_token;  ///< the island's: see Join
  std::string codec = "f32";            ///< compress::make_codec
  /// By fragment, as codec_error() had it; empty: nothing yet.
  std::vector<std::vector<float>> codec_errors;
};

/// What one rank does of its island's exchanges: it encodes its part of each pseudo-gradient, sums
/// and steps that part, and lets other islands fetch it. When, the rank that leads the island says
/// (Client), which does its own part in the same way. But for what says so, one thread at a time.
class RankExchange {
 public:
  /// `state` must outlive this.
  RankExchange(const RankExchangeOptions& options, OuterState& state);
  ~RankExchange();
  RankExchange(const RankExchange&) = delete;
  RankExchange& operator=(const RankExchange&) = delete;

  /// Where others fetch from this rank; empty: it only calls out.
  const std::string& address() const { return address_; }
  /// Options::relay_token and peer_token.
  const std::string& relay_token() const { return options_.relay_token; }
  const std::string& peer_token() const { return options_.peer_token; }
  const ShardPlace& place() const { return options_.place; }
  OuterCodecs& codecs() { return codecs_; }
  const OuterState& state() const { return state_; }

  /// What others may ask for.
  enum class Offers {
    kPseudoGradient,
    kState,      ///< with gossip: the state as it is
    kNextState,  ///< with gossip: what an outer step of this island alone makes of it
  };
  /// squares_of() the rank's part of a pseudo-gradient. Where they are finite, others may ask for
  /// it, or for what `offers` says, from now on, and encode() must follow.
  std::vector<double> offer(std::int64_t outer_step, int fragment, const std::string& codec,
                            std::shared_ptr<const std::vector<float>> delta,
                            Offers offers = Offers::kPseudoGradient);
  /// Encodes what was offered last. Returns bytes of f32 encoded a second.
  double encode();

  /// What came of a reduction.
  struct Reduced {
    ExchangeResult exchange;
    StateHash hash;               ///< what this rank's part adds to that of the result
    std::vector<double> squares;  ///< of its part of the mean; empty where states are exchanged
    double spread = 0;  ///< there: how far the offered anchor was from the mean's, relative to that
  };
  /// Makes the rank's part of the mean, and of the outer step beside the state, piece by piece
  /// while the rest arrives.
  Reduced reduce(const Stamp& stamp, const Reduce& reduce, IslandId self, const Contacts& contacts,
                 const std::stop_token& cancel);
  /// What was offered last of a fragment was committed: what the codec left unsaid then stays.
  void accept(int fragment);
  /// Lets others fetch what is the state now.
  void publish(int fragment);
  /// Fetches the rank's part of a state. `values` as FragmentState has them.
  ExchangeResult fetch(int fragment, const StateHash& hash, const std::vector<Source>& sources,
                       const Contacts& contacts, std::span<float> values,
                       const std::stop_token& cancel);
  /// Puts the rank's part of what of the state has these hashes to the coordinator, beside all
  /// else, instead of what was being put. `connection`: that of the coordinator; what was put on
  /// another is put anew. A thread of its own calls it, always the same.
  void upload(const std::vector<StateHash>& hashes, std::uint64_t connection);
  void stop_upload() { uploading_ = {}; }

  // From any thread.

  /// The codec's accumulated error of the rank's part, which checkpoints must keep. Empty for a
  /// codec without error feedback.
  std::vector<float> codec_error(int fragment) const;
  /// The islands from which bytes have come.
  RecentSenders& heard() { return exchange_->heard(); }
  /// Payload of all exchanges so far.
  std::uint64_t sent_bytes() const;
  std::uint64_t received_bytes() const { return exchange_->traffic().received_bytes; }

 private:
  double spread_of(std::size_t elements) const;
  void upload_one(const FragmentState& state, const StatePart& part, const std::stop_token& cancel);

  RankExchangeOptions options_;
  OuterState& state_;
  OuterCodecs codecs_;
  wire::BlobStore store_{[this](const wire::Caller& caller) {
    return wire::is_access_token(options_.peer_token, caller.access_token)
               ? std::optional<std::string>("a member")
               : std::nullopt;
  }};
  std::unique_ptr<wire::Server> server_;
  std::unique_ptr<Exchange> exchange_;
  std::string address_;

  // What was offered last.
  struct Offered {
    std::size_t fragment = 0;
    std::string codec;
    std::shared_ptr<const std::vector<float>> delta;
    std::shared_ptr<EncodedDelta> encoded;
  };
  std::optional<Offered> offered_;
  // By fragment: what the codec could not say, before and after the last offer. `error_` under the
  // mutex.
  std::vector<std::vector<float>> error_, error_next_;
  mutable std::mutex mutex_;
  std::vector<float> mean_;
  // Null where pseudo-gradients are exchanged.
  std::shared_ptr<const std::vector<float>> offered_state_;

  // State that is being put to the coordinator: what of each fragment is there, by its key. Of a
  // fragment that was interrupted, on the connection of that number; the thread's while it runs.
  std::map<std::string, std::vector<bool>> uploaded_;
  std::uint64_t uploaded_on_ = 0;
  std::jthread uploading_;
};

}  // namespace atl::island
