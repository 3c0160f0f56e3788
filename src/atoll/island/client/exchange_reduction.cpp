#include "atoll/island/client/exchange_reduction.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/island/client/transfers.h"

namespace atl::island {

namespace {

// How long to wait for the requests to be sent; a connection may have to be made first.
constexpr std::chrono::seconds kAskWithin{1};

std::string sum_key(const Stamp& stamp) {
  return fmt::format("sum/{:012}/{}", stamp.outer_step, stamp.attempt);
}

}  // namespace

bool Exchange::Reduction::everybody_sums() const {
  if (reduce_.is_star) return true;
  const std::uint64_t delta = encoded_bytes(codec_, elements_);
  const std::uint64_t sum = encoded_bytes(sum_codec_, elements_);
  return participants().size() * delta <= delta + sum;
}

int Exchange::Reduction::rank_of(IslandId island) const {
  for (std::size_t i = 0; i < participants().size(); ++i) {
    if (participants()[i].island == island) return static_cast<int>(i);
  }
  return -1;
}

bool Exchange::Reduction::sums_piece(std::size_t piece) const {
  if (!mine_.has(piece)) return false;
  return everybody_sums() || rank_of(self_) == static_cast<int>(piece % participants().size());
}

// Room is only for pieces that are summed here.
void Exchange::Reduction::place_pieces() {
  received_at_.resize(pieces_);
  std::size_t bytes = 0;
  for (std::size_t p = mine_.begin; p < mine_.end; ++p) {
    received_at_[p] = bytes;
    if (sums_piece(p)) bytes += codec_.max_bytes(piece_elements(elements_, p));
  }
  if (everybody_sums() || contributes()) {
    for (std::size_t i = 0; i < participants().size(); ++i) {
      if (participants()[i].island != self_) received_[i].resize(bytes);
    }
  }
}

// What passes through the coordinator is put there by all ranks of an island.
std::vector<Exchange::Reduction::Endpoint> Exchange::Reduction::endpoints(std::size_t rank) const {
  if (reduce_.is_star) return {{"", {0, pieces_}}};
  const std::vector<std::string> addresses = split_addresses(participants()[rank].address);
  const int count = static_cast<int>(addresses.size());
  std::vector<Endpoint> all;
  for (int r = 0; r < count; ++r) {
    all.push_back(
        {addresses[static_cast<std::size_t>(r)], pieces_of(elements_, range_of({r, count}))});
  }
  return all;
}

std::vector<bool> Exchange::Reduction::all_but(
    const std::function<bool(std::size_t piece)>& wanted) const {
  std::vector<bool> done(pieces_);
  for (std::size_t p = 0; p < pieces_; ++p) done[p] = !wanted(p);
  return done;
}

std::span<float> Exchange::Reduction::mean_of(std::size_t piece) const {
  return mean_.subspan((piece - mine_.begin) * static_cast<std::size_t>(piece_size(elements_)),
                       static_cast<std::size_t>(piece_elements(elements_, piece)));
}

// Notes that bytes of an island have come. In a star the coordinator sees that by itself.
void Exchange::Reduction::came_from(std::size_t rank, std::size_t bytes) {
  if (!reduce_.is_star) exchange_.heard_.note(participants()[rank].island);
  const std::lock_guard lock(mutex_);
  Arrivals& from = arrivals_[rank];
  from.last = Clock::now();
  if (from.bytes == 0) from.first = from.last;
  from.bytes += bytes;
}

// The first bytes of an island come a round trip after they are asked for, at the earliest; the
// rest at the link's rate, beside those of all others.
std::vector<LinkMeasurement> Exchange::Reduction::links() const {
  const auto seconds = [](Clock::duration time) {
    return std::chrono::duration<double>(time).count();
  };
  std::vector<LinkMeasurement> all;
  for (std::size_t rank = 0; rank < arrivals_.size(); ++rank) {
    const Arrivals& from = arrivals_[rank];
    if (from.bytes == 0) continue;
    all.push_back({.island = participants()[rank].island,
                   .bytes_per_second = static_cast<double>(from.bytes) /
                                       std::max(1e-6, seconds(from.last - begun_)),
                   .round_trip_seconds = std::max(0.0, seconds(from.first - begun_))});
  }
  return all;
}

void Exchange::Reduction::made(std::size_t piece) {
  if (!on_piece_) return;
  on_piece_((piece - mine_.begin) * static_cast<std::size_t>(piece_size(elements_)),
            mean_of(piece));
}

wire::BlobClient& Exchange::Reduction::remote(std::size_t rank, const Endpoint& from) const {
  if (reduce_.is_star) return exchange_.coordinator();
  const auto contact = contacts_.find(participants()[rank].island);
  return exchange_.remote(from.address, contact == contacts_.end() ? Contact{} : contact->second);
}

void Exchange::Reduction::fail(std::optional<IslandId> island, const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (island) result_.unreachable.push_back(*island);
  if (result_.why.empty()) result_.why = why.empty() ? "it gave no reason" : why;
}

void Exchange::Reduction::guard(IslandId island, const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    fail(island, error.what());
  }
}

void Exchange::Reduction::sum(std::size_t piece) {
  const std::span<float> mean = mean_of(piece);
  std::fill(mean.begin(), mean.end(), 0.0F);
  const std::size_t offset = (piece - mine_.begin) * codec_.max_bytes(piece_size(elements_));
  const std::size_t bytes = codec_.max_bytes(piece_elements(elements_, piece));
  for (std::size_t i = 0; i < participants().size(); ++i) {
    const bool is_own = participants()[i].island == self_;
    const std::span<const std::byte> of_one =
        is_own ? std::span(own_->bytes).subspan(offset, bytes)
               : std::span<const std::byte>(received_[i]).subspan(received_at_[piece], bytes);
    codec_.decode_add(of_one, static_cast<float>(participants()[i].weight), mean);
  }
  if (everybody_sums()) return made(piece);
  // This island decodes its own delta as the others do, so that all sum the same bits.
  std::vector<std::byte> encoded;
  sum_codec_.encode(mean, {}, encoded);
  const std::size_t sum_bytes = sum_codec_.max_bytes(piece_elements(elements_, piece));
  encoded.resize(sum_bytes);
  std::copy(
      encoded.begin(), encoded.end(),
      sums_->begin() + static_cast<std::ptrdiff_t>((piece - mine_.begin) *
                                                   sum_codec_.max_bytes(piece_size(elements_))));
  sum_codec_.decode(encoded, mean);
  exchange_.store_.mark(sum_key(stamp_), piece);
  made(piece);
}

void Exchange::Reduction::arrived(std::size_t piece) {
  if (arrived_[piece].fetch_add(1) + 1 == participants().size()) sum(piece);
}

void Exchange::Reduction::take_own() {
  const auto offered = exchange_.offered_.find(stamp_.outer_step);
  if (offered == exchange_.offered_.end() || offered->second->elements != elements_) {
    throw make_error(ErrorKind::kPeer, "outer step {} counts on this island, which offers nothing",
                     stamp_.outer_step);
  }
  own_ = offered->second;
  for (std::size_t p = 0; p < pieces_; ++p) {
    if (sums_piece(p)) arrived(p);
  }
}

// Waits until this island's own requests are sent. On a slow link they would queue behind the whole
// pseudo-gradient, and the two directions would be used one after the other. Unreachable islands
// are not waited for.
void Exchange::Reduction::wait_until_asked() {
  std::unique_lock lock(mutex_);
  asked_.wait_for(lock, cancel_, kAskWithin, [this] { return num_to_ask_ == 0; });
}

void Exchange::Reduction::fetch_delta(std::size_t rank, const Endpoint& from,
                                      const OnAsked& on_asked) {
  const Participant& other = participants()[rank];
  std::vector<bool> done =
      all_but([&](std::size_t p) { return from.pieces.has(p) && sums_piece(p); });
  if (std::find(done.begin(), done.end(), false) == done.end()) return;
  std::vector<std::byte>& bytes = received_[rank];
  const wire::BlobTransfer transfer = {.key = reduce_.is_star
                                                  ? relay_key(stamp_.outer_step, other.island)
                                                  : delta_key(stamp_.outer_step),
                                       .bytes = encoded_bytes(codec_, elements_),
                                       .chunk_bytes = codec_.max_bytes(piece_size(elements_)),
                                       .cancel = cancel_,
                                       .on_asked = on_asked};
  const wire::TransferResult result = persist([&] {
    return remote(rank, from)
        .fetch(transfer, done, [&](std::uint64_t offset, std::span<const std::byte> data) {
          const std::size_t piece = offset / transfer.chunk_bytes;
          std::memcpy(bytes.data() + received_at_[piece], data.data(), data.size());
          came_from(rank, data.size());
          arrived(piece);
        });
  });
  if (result.end != wire::TransferEnd::kDone) fail(other.island, result.why);
}

void Exchange::Reduction::asked() {
  {
    const std::lock_guard lock(mutex_);
    --num_to_ask_;
  }
  asked_.notify_all();
}

// Gives the pseudo-gradient to islands that ask for it; in a star puts it to the coordinator.
void Exchange::Reduction::give_own() {
  if (reduce_.is_star) {
    guard(self_, [this] { put_delta(); });
  } else {
    const std::string key = delta_key(stamp_.outer_step);
    for (std::size_t p = mine_.begin; p < mine_.end; ++p) exchange_.store_.mark(key, p);
  }
}

void Exchange::Reduction::put_delta() {
  std::vector<bool> done = all_but([&](std::size_t p) { return mine_.has(p); });
  if (std::find(done.begin(), done.end(), false) == done.end()) return;
  const wire::BlobTransfer transfer = {.key = kPutPrefix + relay_key(stamp_.outer_step, self_),
                                       .bytes = own_->total_bytes,
                                       .chunk_bytes = own_->piece_bytes,
                                       .cancel = cancel_};
  const wire::TransferResult result = persist([&] {
    return exchange_.coordinator().put(
        transfer, done, reader_of(own_->bytes, mine_.begin * own_->piece_bytes, own_));
  });
  if (result.end != wire::TransferEnd::kDone) fail(std::nullopt, result.why);
}

void Exchange::Reduction::fetch_sums(std::size_t rank, const Endpoint& from,
                                     const OnAsked& on_asked) {
  std::vector<bool> done = all_but([&](std::size_t p) {
    return mine_.has(p) && from.pieces.has(p) && p % participants().size() == rank;
  });
  if (std::find(done.begin(), done.end(), false) == done.end()) return;
  const wire::BlobTransfer transfer = {.key = sum_key(stamp_),
                                       .bytes = encoded_bytes(sum_codec_, elements_),
                                       .chunk_bytes = sum_codec_.max_bytes(piece_size(elements_)),
                                       .cancel = cancel_,
                                       .on_asked = on_asked};
  const auto take = [&](std::uint64_t offset, std::span<const std::byte> data) {
    const std::size_t piece = offset / transfer.chunk_bytes;
    sum_codec_.decode(data, mean_of(piece));
    came_from(rank, data.size());
    made(piece);
  };
  wire::TransferResult result =
      persist([&] { return remote(rank, from).fetch(transfer, done, take); });
  // An island that has not begun this attempt yet is asked again.
  for (int i = 0; i < 100 && result.end == wire::TransferEnd::kGone && !cancel_.stop_requested();
       ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    result = remote(rank, from).fetch(transfer, done, take);
  }
  if (result.end != wire::TransferEnd::kDone) fail(participants()[rank].island, result.why);
}

// The room for the sums that this rank makes of its pieces.
void Exchange::Reduction::publish_sums() {
  const std::size_t piece_bytes = sum_codec_.max_bytes(piece_size(elements_));
  const EncodedDelta room = room_for(sum_codec_, elements_, range_of(exchange_.options_.place));
  sums_ = std::make_shared<std::vector<std::byte>>(room.bytes.size());
  exchange_.store_.publish({.key = sum_key(stamp_),
                            .bytes = room.total_bytes,
                            .chunk_bytes = piece_bytes,
                            .reader = reader_of(*sums_, mine_.begin * piece_bytes, sums_)});
}

ExchangeResult Exchange::Reduction::run() {
  const bool shares = !everybody_sums();
  place_pieces();
  if (shares && contributes()) publish_sums();
  if (contributes()) take_own();
  std::vector<std::thread> threads;
  using Fetch = void (Reduction::*)(std::size_t, const Endpoint&, const OnAsked&);
  const auto fetch = [&](std::size_t i, const Endpoint& from, Fetch part) {
    {
      const std::lock_guard lock(mutex_);
      ++num_to_ask_;
    }
    threads.emplace_back([this, i, from, part] {
      std::once_flag once;
      const auto on_asked = [&] { std::call_once(once, [this] { asked(); }); };
      guard(participants()[i].island, [&] { (this->*part)(i, from, on_asked); });
      on_asked();
    });
  };
  for (std::size_t i = 0; i < participants().size(); ++i) {
    if (participants()[i].island == self_) continue;
    for (const Endpoint& from : endpoints(i)) {
      if (!shares || contributes()) fetch(i, from, &Reduction::fetch_delta);
      if (shares) fetch(i, from, &Reduction::fetch_sums);
    }
  }
  if (contributes()) {
    wait_until_asked();
    give_own();
  }
  for (std::thread& thread : threads) thread.join();
  std::sort(result_.unreachable.begin(), result_.unreachable.end());
  result_.unreachable.erase(std::unique(result_.unreachable.begin(), result_.unreachable.end()),
                            result_.unreachable.end());
  result_.is_done = result_.why.empty();
  result_.links = links();
  return std::move(result_);
}

ExchangeResult Exchange::reduce(const Stamp& stamp, const Reduce& reduce, IslandId self,
                                const Contacts& contacts, std::int64_t elements,
                                std::span<float> mean, const std::stop_token& cancel,
                                const OnPiece& on_piece) {
  drop_sums();
  try {
    return Reduction(*this, stamp, reduce, self, contacts, elements, mean, cancel, on_piece).run();
  } catch (const Error& error) {
    return {.why = error.what()};
  }
}

}  // namespace atl::island
