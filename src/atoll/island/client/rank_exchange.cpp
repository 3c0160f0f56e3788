#include "atoll/island/client/rank_exchange.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/log.h"
#include "atoll/island/protocol/trace.h"
#include "atoll/wire/identity.h"
#include "atoll/wire/revocations.h"

namespace atl::island {

namespace {

using Clock = std::chrono::steady_clock;

// Ranks of one island share its link.
int streams_of(const ShardPlace& place) {
  return std::max(1, 4 / place.num_ranks);
}

}  // namespace

RankExchange::RankExchange(const RankExchangeOptions& options, OuterState& state)
    : options_(options), state_(state), codecs_(options.codec) {
  // Also without a server of its own: an old revocation list is noticed.
  if (options_.identity) {
    const wire::Revocations newest(wire::load_identity(*options_.identity), options_.kept_list);
  }
  if (!options_.listen.empty()) {
    server_ = std::make_unique<wire::Server>(wire::ServerOptions{.listen = options_.listen,
                                                                 .identity = options_.identity,
                                                                 .secret = options_.secret,
                                                                 .kept_list = options_.kept_list},
                                             nullptr, &store_);
    address_ = options_.advertise.empty() ? server_->address() : options_.advertise;
  }
  exchange_ = std::make_unique<Exchange>(ExchangeOptions{.coordinator = options_.coordinator,
                                                         .identity = options_.identity,
                                                         .secret = options_.secret,
                                                         .relay_token = options_.relay_token,
                                                         .streams = streams_of(options_.place),
                                                         .place = options_.place,
                                                         .state_vectors = state_.part(0).vectors()},
                                         store_, codecs_);
  const auto fragments = static_cast<std::size_t>(state_.num_fragments());
  error_.resize(fragments);
  error_next_.resize(fragments);
  for (std::size_t f = 0; f < fragments; ++f) {
    publish(static_cast<int>(f));
    const bool has_error = f < options_.codec_errors.size() && !options_.codec_errors[f].empty();
    if (!codecs_.of("").wants_error() && !has_error) continue;
    error_[f].resize(state_.elements(static_cast<int>(f)));
    if (has_error) error_[f] = options_.codec_errors[f];
  }
}

RankExchange::~RankExchange() {
  uploading_ = {};
  exchange_.reset();  // before the server: it withdraws what is being fetched
  if (server_) server_->stop();
}

std::vector<double> RankExchange::offer(std::int64_t outer_step, int fragment,
                                        const std::string& codec,
                                        std::shared_ptr<const std::vector<float>> delta,
                                        Offers offers) {
  const StatePart& part = state_.part(fragment);
  std::vector<double> squares = squares_of(part.elements(), *delta);
  offered_.reset();
  offered_state_.reset();
  if (!std::isfinite(norm_of(squares))) return squares;
  std::shared_ptr<EncodedDelta> encoded;
  if (offers == Offers::kPseudoGradient) {
    encoded =
        std::make_shared<EncodedDelta>(room_for(codecs_.of(codec), part.elements(), part.own()));
  } else {
    ATOLL_CHECK(part.is_whole(), "rank {} of {} exchanges states", options_.place.rank,
                options_.place.num_ranks);
    const bool as_it_is = offers == Offers::kState;
    delta = std::make_shared<const std::vector<float>>(
        state_.values_after(fragment, as_it_is ? std::span<const float>() : *delta));
    offered_state_ = delta;
    const auto size = static_cast<std::int64_t>(delta->size());
    encoded = std::make_shared<EncodedDelta>(room_for(codecs_.of(codec), size));
  }
  exchange_->offer(outer_step, encoded);
  offered_ = {static_cast<std::size_t>(fragment), codec, std::move(delta), encoded};
  return squares;
}

double RankExchange::encode() {
  if (!offered_) return 0;
  const std::size_t at = offered_->fragment;
  const std::span<const float> delta(*offered_->delta);
  const compress::Codec& codec = codecs_.of(offered_->codec);
  const Clock::time_point start = Clock::now();
  if (codec.wants_error() || error_[at].empty()) {
    if (codec.wants_error()) {
      const std::lock_guard lock(mutex_);
      error_[at].resize(delta.size());
    }
    error_next_[at] = error_[at];
    encode_pieces(codec, delta, error_next_[at], *offered_->encoded);
  } else {
    // What another codec left unsaid goes with the first pseudo-gradient that can say it.
    std::vector<float> all(delta.begin(), delta.end());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] += error_[at][i];
    error_next_[at].clear();
    encode_pieces(codec, all, {}, *offered_->encoded);
  }
  offered_->delta.reset();
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return static_cast<double>(delta.size_bytes()) / std::max(1e-9, seconds);
}

RankExchange::Reduced RankExchange::reduce(const Stamp& stamp, const Reduce& reduce, IslandId self,
                                           const Contacts& contacts,
                                           const std::stop_token& cancel) {
  const StatePart& part = state_.part(reduce.fragment);
  const bool is_of_states = offered_state_ != nullptr;
  const std::int64_t elements =
      is_of_states ? static_cast<std::int64_t>(part.size()) : part.elements();
  mean_.resize(is_of_states ? part.size() : static_cast<std::size_t>(part.own().size()));
  const std::unique_ptr<OuterState::Step> step =
      is_of_states ? state_.begin_mean_of_states(reduce.fragment)
                   : state_.begin_step(
                         reduce.fragment,
                         {.lr = reduce.schedule.outer_lr,
                          .arrivals = reduce.arrivals,
                          .contributions = static_cast<std::int64_t>(reduce.participants.size())});
  Reduced reduced;
  reduced.exchange = exchange_->reduce(
      stamp, reduce, self, contacts, elements, mean_, cancel,
      [&](std::size_t first, std::span<const float> mean) { step->add(first, mean); });
  trace("outer step {}: has the mean", stamp.outer_step + 1);
  if (cancel.stop_requested() || !reduced.exchange.is_done) return reduced;
  reduced.hash = state_.prepare(*step);
  if (is_of_states) {
    reduced.spread = spread_of(static_cast<std::size_t>(part.elements()));
  } else {
    reduced.squares = squares_of(part.elements(), mean_);
  }
  return reduced;
}

double RankExchange::spread_of(std::size_t elements) const {
  double apart = 0, whole = 0;
  for (std::size_t i = 0; i < elements; ++i) {
    const double mean = mean_[i];
    const double difference = (*offered_state_)[i] - mean;
    apart += difference * difference;
    whole += mean * mean;
  }
  return whole > 0 ? std::sqrt(apart / whole) : 0;
}

void RankExchange::accept(int fragment) {
  const auto at = static_cast<std::size_t>(fragment);
  const std::lock_guard lock(mutex_);
  error_[at] = error_next_[at];
}

void RankExchange::publish(int fragment) {
  const auto state = state_.current(fragment);
  if (!state) return;
  exchange_->publish_state(fragment, state->hash, state_.part(fragment), state->values, state);
}

ExchangeResult RankExchange::fetch(int fragment, const StateHash& hash,
                                   const std::vector<Source>& sources, const Contacts& contacts,
                                   std::span<float> values, const std::stop_token& cancel) {
  return exchange_->fetch_state(hash, sources, contacts, state_.part(fragment), values, cancel);
}

// An upload that is under way is stopped: it is of an older state or for another island. An
// interrupted fragment continues where it stopped.
void RankExchange::upload(const std::vector<StateHash>& hashes, std::uint64_t connection) {
  std::vector<std::pair<std::shared_ptr<const FragmentState>, StatePart>> fragments;
  for (int f = 0; f < state_.num_fragments() && f < static_cast<int>(hashes.size()); ++f) {
    auto state = state_.current(f);
    if (!state || state->hash != hashes[static_cast<std::size_t>(f)]) continue;
    fragments.emplace_back(std::move(state), state_.part(f));
  }
  uploading_ = {};
  if (std::exchange(uploaded_on_, connection) != connection) uploaded_.clear();
  uploading_ = std::jthread([this, fragments](const std::stop_token& cancel) {
    for (const auto& one : fragments) {
      if (!cancel.stop_requested()) upload_one(*one.first, one.second, cancel);
    }
  });
}

void RankExchange::upload_one(const FragmentState& state, const StatePart& part,
                              const std::stop_token& cancel) {
  const std::string key = state_key(state.hash);
  std::string why;
  try {
    const ExchangeResult result =
        exchange_->put_state(state.hash, part, state.values, uploaded_[key], cancel);
    if (!result.is_done && cancel.stop_requested()) return;
    if (!result.is_done) why = result.why;
  } catch (const std::exception& error) {  // no memory, no thread, an identity that was removed
    why = error.what();
  }
  uploaded_.erase(key);
  if (why.empty()) return;
  log::warning("state for an island that reaches nobody else could not be put: {}", why);
}

std::vector<float> RankExchange::codec_error(int fragment) const {
  const std::lock_guard lock(mutex_);
  return error_[static_cast<std::size_t>(fragment)];
}

// Others fetch from this rank's server; what goes through the coordinator is put there.
std::uint64_t RankExchange::sent_bytes() const {
  std::uint64_t sent = exchange_->traffic().sent_bytes;
  if (server_) sent += server_->traffic().sent_bytes;
  return sent;
}

}  // namespace atl::island
