#include "atoll/island/client/exchange.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <functional>
#include <thread>

#include "atoll/base/error.h"
#include "atoll/island/client/transfers.h"

namespace atl::island {

std::string relay_key(std::int64_t outer_step, IslandId island) {
  return fmt::format("delta/{:012}/{}", outer_step, island);
}

std::string to_text(const StateHash& hash) {
  return fmt::format("{:016x}{:016x}", hash.high, hash.low);
}

std::string state_key(const StateHash& hash) {
  return "state/" + to_text(hash);
}

Exchange::Exchange(ExchangeOptions options, wire::BlobStore& store, OuterCodecs& codecs)
    : options_(std::move(options)), store_(store), codecs_(codecs) {}

Exchange::~Exchange() {
  for (const char* prefix : {"delta/", "sum/", "state/"}) store_.withdraw(prefix);
}

wire::BlobClient& Exchange::remote(const std::string& address, const Contact& contact) {
  const std::string& place = address.empty() ? options_.coordinator : address;
  const std::string key = fmt::format("{} {} {}", place, contact.name, contact.peer_token);
  const std::lock_guard lock(remotes_mutex_);
  std::unique_ptr<wire::BlobClient>& found = remotes_[key];
  if (!found) {
    found = std::make_unique<wire::BlobClient>(
        wire::BlobClientOptions{.address = place,
                                .identity = options_.identity,
                                .secret = options_.secret,
                                .server_name = contact.name,
                                .access_token = contact.peer_token,
                                .streams = options_.streams,
                                .traffic = &traffic_});
  }
  return *found;
}

void Exchange::offer(std::int64_t outer_step, std::shared_ptr<const EncodedDelta> delta) {
  while (!offered_.empty() && offered_.begin()->first < outer_step) {
    store_.withdraw(delta_key(offered_.begin()->first));
    offered_.erase(offered_.begin());
  }
  if (offered_.contains(outer_step)) store_.withdraw(delta_key(outer_step));
  store_.publish(
      {.key = delta_key(outer_step),
       .bytes = delta->total_bytes,
       .chunk_bytes = delta->piece_bytes,
       .reader = reader_of(delta->bytes, delta->pieces.begin * delta->piece_bytes, delta)});
  offered_[outer_step] = std::move(delta);
}

void Exchange::drop_sums() {
  store_.withdraw("sum/");
}

void Exchange::publish_state(int fragment, const StateHash& hash, const StatePart& part,
                             std::span<const float> values, std::shared_ptr<const void> keep) {
  const std::string key = state_key(hash);
  std::string& before = state_keys_[fragment];
  if (before == key) return;
  if (!before.empty()) store_.withdraw(before);
  before = key;
  store_.publish({.key = key,
                  .bytes = part.bytes(),
                  .chunk_bytes = part.chunk_bytes(),
                  .reader = reader_of(part, values, std::move(keep)),
                  .is_complete = part.is_whole()});
  if (part.is_whole()) return;
  for (std::uint64_t c = part.first_chunk(); c < part.end_chunk(); ++c) store_.mark(key, c);
}

ExchangeResult Exchange::put_state(const StateHash& hash, const StatePart& part,
                                   std::span<const float> values, std::vector<bool>& done,
                                   const std::stop_token& cancel) {
  const wire::BlobTransfer transfer = {.key = kPutPrefix + state_key(hash),
                                       .bytes = part.bytes(),
                                       .chunk_bytes = part.chunk_bytes(),
                                       .cancel = cancel};
  done.resize(wire::num_chunks(part.bytes(), part.chunk_bytes()));
  for (std::size_t c = 0; c < done.size(); ++c) {
    if (c < part.first_chunk() || c >= part.end_chunk()) done[c] = true;  // another rank's
  }
  const wire::TransferResult result =
      persist([&] { return coordinator().put(transfer, done, reader_of(part, values, nullptr)); });
  return {.is_done = result.end == wire::TransferEnd::kDone, .why = result.why};
}

}  // namespace atl::island
