// Fetching state from the ranks of other islands.

#include <algorithm>
#include <mutex>
#include <thread>

#include "atoll/base/error.h"
#include "atoll/island/client/exchange.h"
#include "atoll/island/client/transfers.h"

namespace atl::island {

namespace {

// A rank of an island that has the state, and which chunks of it: none of these is another rank's.
struct Place {
  IslandId island = kNobody;
  std::size_t source = 0;  // the number of its island among the sources
  std::string address;     // empty: the coordinator, which has what the island put there
  std::uint64_t first_chunk = 0, end_chunk = 0;

  bool has(std::uint64_t chunk) const { return first_chunk <= chunk && chunk < end_chunk; }
};

std::vector<Place> places_of(const std::vector<Source>& sources, const StatePart& part) {
  std::vector<Place> places;
  for (std::size_t s = 0; s < sources.size(); ++s) {
    const std::vector<std::string> addresses = split_addresses(sources[s].address);
    const int count = static_cast<int>(addresses.size());
    for (int rank = 0; rank < count; ++rank) {
      const StatePart theirs(part.elements(),
                             shard_range(part.elements(), part.vectors(), {rank, count}),
                             part.vectors());
      places.push_back({sources[s].island, s, addresses[static_cast<std::size_t>(rank)],
                        theirs.first_chunk(), theirs.end_chunk()});
    }
  }
  return places;
}

}  // namespace

ExchangeResult Exchange::fetch_state(const StateHash& hash, const std::vector<Source>& sources,
                                     const Contacts& contacts, const StatePart& part,
                                     std::span<float> values, const std::stop_token& cancel) {
  const wire::BlobTransfer transfer = {.key = state_key(hash),
                                       .bytes = part.bytes(),
                                       .chunk_bytes = part.chunk_bytes(),
                                       .cancel = cancel};
  const std::vector<Place> places = places_of(sources, part);
  std::vector<bool> have(wire::num_chunks(part.bytes(), part.chunk_bytes()));
  for (std::size_t c = 0; c < have.size(); ++c) {
    have[c] = c < part.first_chunk() || c >= part.end_chunk();
  }
  std::mutex mutex;
  ExchangeResult result;
  // Fetches the chunks that the place has and for which done is false.
  const auto fetch = [&](const Place& place, std::vector<bool> done) {
    for (std::size_t c = 0; c < done.size(); ++c) done[c] = done[c] || !place.has(c);
    if (std::find(done.begin(), done.end(), false) == done.end()) return;
    const std::vector<bool> before = done;
    const auto lost = [&](const std::string& why) {
      result.unreachable.push_back(place.island);
      result.why = why;
    };
    try {
      // An island without an address puts its state to the coordinator, whose certificate names its
      // host.
      const auto contact = contacts.find(place.island);
      wire::BlobClient& from =
          place.address.empty()
              ? coordinator()
              : remote(place.address, contact == contacts.end() ? Contact{} : contact->second);
      const wire::TransferResult end = persist([&] {
        return from.fetch(transfer, done,
                          [&](std::uint64_t offset, std::span<const std::byte> data) {
                            part.write(values, offset, data);
                            if (!place.address.empty()) heard_.note(place.island);
                          });
      });
      const std::lock_guard lock(mutex);
      for (std::size_t i = 0; i < done.size(); ++i) {
        if (done[i] && !before[i]) have[i] = true;
      }
      if (end.end == wire::TransferEnd::kDone) return;
      result.is_gone |= end.end == wire::TransferEnd::kGone;
      lost(end.why);
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      lost(error.what());
    }
  };
  // Each source is asked for every n-th chunk; the next sources for chunks that are still missing.
  const std::vector<bool> first = have;
  std::vector<std::thread> threads;
  for (const Place& place : places) {
    std::vector<bool> done = first;
    for (std::size_t c = 0; c < done.size(); ++c) {
      done[c] = done[c] || c % sources.size() != place.source;
    }
    threads.emplace_back([&fetch, &place, done] { fetch(place, done); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Place& place : places) {
    if (std::find(have.begin(), have.end(), false) == have.end()) break;
    const auto lost = result.unreachable;
    if (std::find(lost.begin(), lost.end(), place.island) == lost.end()) fetch(place, have);
  }
  if (std::find(have.begin(), have.end(), false) != have.end()) {
    if (result.why.empty()) result.why = "nobody has this state";
    return result;
  }
  result.is_done = true;
  return result;
}

}  // namespace atl::island
