#include "atoll/island/client/exchange.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <functional>
#include <thread>

#include "atoll/base/error.h"
#include "atoll/island/client/exchange_reduction.h"

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

std::size_t state_chunk_bytes(std::uint64_t bytes) {
  constexpr std::size_t kEnough = 32;
  std::size_t size = std::size_t{64} << 10;
  while (size > (std::size_t{16} << 10) && size * kEnough > bytes) size /= 2;
  return size;
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
  store_.publish({.key = delta_key(outer_step),
                  .bytes = delta->bytes.size(),
                  .chunk_bytes = delta->piece_bytes,
                  .reader = reader_of(delta->bytes, delta)});
  offered_[outer_step] = std::move(delta);
}

ExchangeResult Exchange::reduce(const Stamp& stamp, const Reduce& reduce, IslandId self,
                                const Contacts& contacts, std::span<float> mean,
                                const std::stop_token& cancel, const OnPiece& on_piece) {
  drop_sums();
  try {
    return Reduction(*this, stamp, reduce, self, contacts, mean, cancel, on_piece).run();
  } catch (const Error& error) {
    return {.why = error.what()};
  }
}

void Exchange::drop_sums() {
  store_.withdraw("sum/");
}

void Exchange::publish_state(int fragment, const StateHash& hash, std::span<const float> values,
                             std::shared_ptr<const void> keep) {
  const std::string key = state_key(hash);
  std::string& before = state_keys_[fragment];
  if (before == key) return;
  if (!before.empty()) store_.withdraw(before);
  before = key;
  store_.publish({.key = key,
                  .bytes = values.size_bytes(),
                  .chunk_bytes = state_chunk_bytes(values.size_bytes()),
                  .reader = reader_of(std::as_bytes(values), std::move(keep)),
                  .is_complete = true});
}

ExchangeResult Exchange::put_state(const StateHash& hash, std::span<const float> values,
                                   std::vector<bool>& done, const std::stop_token& cancel) {
  const wire::BlobTransfer transfer = {.key = kPutPrefix + state_key(hash),
                                       .bytes = values.size_bytes(),
                                       .chunk_bytes = state_chunk_bytes(values.size_bytes()),
                                       .cancel = cancel};
  const wire::TransferResult result = persist(
      [&] { return coordinator().put(transfer, done, reader_of(std::as_bytes(values), nullptr)); });
  return {.is_done = result.end == wire::TransferEnd::kDone, .why = result.why};
}

ExchangeResult Exchange::fetch_state(const StateHash& hash, const std::vector<Source>& sources,
                                     const Contacts& contacts, std::span<float> values,
                                     const std::stop_token& cancel) {
  const std::span<std::byte> bytes = std::as_writable_bytes(values);
  const std::size_t chunk_bytes = state_chunk_bytes(bytes.size());
  const std::uint64_t chunks = wire::num_chunks(bytes.size(), chunk_bytes);
  const wire::BlobTransfer transfer = {
      .key = state_key(hash), .bytes = bytes.size(), .chunk_bytes = chunk_bytes, .cancel = cancel};
  std::vector<bool> have(chunks);
  std::mutex mutex;
  ExchangeResult result;
  // Each source is asked for every n-th chunk; the next sources for chunks that are still missing.
  const auto fetch = [&](const Source& source, std::vector<bool> done) {
    // An island without an address puts its state to the coordinator, whose certificate names its
    // host.
    const std::vector<bool> before = done;
    try {
      const auto contact = contacts.find(source.island);
      wire::BlobClient& from =
          source.address.empty()
              ? coordinator()
              : remote(source.address, contact == contacts.end() ? Contact{} : contact->second);
      const wire::TransferResult end = persist([&] {
        return from.fetch(transfer, done,
                          [&](std::uint64_t offset, std::span<const std::byte> data) {
                            std::memcpy(bytes.data() + offset, data.data(), data.size());
                            if (!source.address.empty()) heard_.note(source.island);
                          });
      });
      const std::lock_guard lock(mutex);
      for (std::size_t i = 0; i < done.size(); ++i) {
        if (done[i] && !before[i]) have[i] = true;
      }
      if (end.end == wire::TransferEnd::kDone) return;
      result.is_gone |= end.end == wire::TransferEnd::kGone;
      result.unreachable.push_back(source.island);
      result.why = end.why;
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      result.unreachable.push_back(source.island);
      result.why = error.what();
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t s = 0; s < sources.size(); ++s) {
    std::vector<bool> done(chunks);
    for (std::size_t i = 0; i < chunks; ++i) done[i] = i % sources.size() != s;
    if (std::find(done.begin(), done.end(), false) == done.end()) continue;
    threads.emplace_back([&fetch, &sources, s, done] { fetch(sources[s], done); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Source& source : sources) {
    if (std::find(have.begin(), have.end(), false) == have.end()) break;
    const auto lost = result.unreachable;
    if (std::find(lost.begin(), lost.end(), source.island) == lost.end()) fetch(source, have);
  }
  if (std::find(have.begin(), have.end(), false) != have.end()) {
    if (result.why.empty()) result.why = "nobody has this state";
    return result;
  }
  result.is_done = true;
  return result;
}

}  // namespace atl::island
