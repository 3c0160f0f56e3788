#include "atoll/island/coordinator/blob_relay.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <new>
#include <span>
#include <utility>

#include "atoll/base/log.h"
#include "atoll/base/processes/cgroup.h"
#include "atoll/island/client/delta_pieces.h"
#include "atoll/island/client/exchange.h"
#include "atoll/island/outer/state_part.h"

namespace atl::island {

namespace {

using Clock = std::chrono::steady_clock;

// State is kept so long after the last fetch: the island may only have lost its connection.
constexpr std::chrono::seconds kStateStays{60};

}  // namespace

struct BlobRelay::Blob {
  Blob(std::uint64_t bytes, std::uint64_t chunk_bytes, std::optional<StateHash> hash)
      : bytes(bytes),
        chunk_bytes(chunk_bytes),
        hash(hash),
        num_missing(wire::num_chunks(bytes, chunk_bytes)) {}

  // Each chunk once.
  void write(std::uint64_t offset, std::span<const std::byte> data) {
    std::copy(data.begin(), data.end(), memory.get() + offset);
    if (--num_missing > 0 || !hash) return;
    is_wrong = hash_of(std::span<const std::byte>(memory.get(), bytes)) != *hash;
  }
  bool is_whole() const { return num_missing == 0; }

  std::unique_ptr<std::byte[]> memory;  // not cleared: only chunks that came are read
  std::uint64_t bytes;
  std::uint64_t chunk_bytes;
  std::optional<StateHash> hash;  // of state: what all of it must have
  std::atomic<std::uint64_t> num_missing;
  std::atomic<bool> is_wrong = false;
};

BlobRelay::BlobRelay(const Roster& roster)
    : store_([&roster](const wire::Caller& caller) { return roster.authenticate(caller); }) {}
BlobRelay::~BlobRelay() = default;

void BlobRelay::serve(const Stamp& stamp, const std::vector<RelayOffer>& offers) {
  // An island that was killed meanwhile may offer another one for the same outer step.
  if (const std::pair attempt(stamp.outer_step, stamp.attempt); attempt != deltas_for_) {
    for (const std::string& key : deltas_) close(key);
    deltas_.clear();
    deltas_for_ = attempt;
  }
  std::vector<std::uint64_t> sizes;
  for (const RelayOffer& offer : offers) sizes.push_back(offer.bytes);
  if (!fits(sizes, "what the islands exchange does", "")) return;
  for (const RelayOffer& offer : offers) {
    const std::string key = relay_key(stamp.outer_step, offer.island);
    const bool makes_sense =
        offer.bytes > 0 && offer.chunk_bytes > 0 && offer.chunk_bytes <= wire::kMaxChunkBytes;
    if (!makes_sense || deltas_.contains(key)) continue;
    const auto blob = std::make_shared<Blob>(offer.bytes, offer.chunk_bytes, std::nullopt);
    if (open(key, blob, offer.island, true)) deltas_.insert(key);
  }
}

// A fragment that is the same in the old and the new state is kept.
std::optional<PutState> BlobRelay::serve(const std::vector<std::uint64_t>& sizes,
                                         const PutState& put, IslandId putter) {
  const std::size_t num_fragments = std::min(sizes.size(), put.hashes.size());
  std::set<std::string> wanted;
  for (const StateHash& hash : put.hashes) wanted.insert(state_key(hash));
  std::erase_if(states_, [&](const auto& state) {
    const bool is_wrong = state.second->is_wrong;
    if (is_wrong) log::warning("{} was put here, and is not the run's", state.first);
    if (wanted.contains(state.first) && !is_wrong) return false;
    close(state.first);
    return true;
  });
  states_stay_until_ = Clock::now() + kStateStays;
  if (!fits(sizes, "the run's state does",
            ": an island that reaches no other one cannot fetch it")) {
    return {};
  }

  PutState missing = {std::vector<StateHash>(put.hashes.size())};
  for (std::size_t f = 0; f < num_fragments; ++f) {
    const std::string key = state_key(put.hashes[f]);
    if (!states_.contains(key)) {
      const auto blob =
          std::make_shared<Blob>(sizes[f], state_chunk_bytes(sizes[f]), put.hashes[f]);
      if (sizes[f] == 0 || !open(key, blob, putter, false)) continue;
      states_[key] = blob;
    }
    store_.hand_over(kPutPrefix + key, Roster::name_of(putter));
    if (!states_[key]->is_whole()) missing.hashes[f] = put.hashes[f];
  }
  const bool is_any = std::any_of(missing.hashes.begin(), missing.hashes.end(),
                                  [](const StateHash& hash) { return hash != StateHash{}; });
  return is_any ? std::optional(missing) : std::nullopt;
}

void BlobRelay::tick(bool is_anybody_fetching) {
  if (states_.empty()) return;
  if (is_anybody_fetching) {
    states_stay_until_ = Clock::now() + kStateStays;
  } else if (Clock::now() > states_stay_until_) {
    for (const auto& [key, blob] : states_) close(key);
    states_.clear();
  }
}

// False where there is no memory for it.
bool BlobRelay::open(const std::string& key, const std::shared_ptr<Blob>& blob, IslandId putter,
                     bool is_heard) {
  try {
    blob->memory = std::make_unique_for_overwrite<std::byte[]>(blob->bytes);
    publish(key, blob, putter, is_heard);
  } catch (const std::bad_alloc&) {
    close(key);
    if (std::exchange(is_told_of_memory_, true)) return false;
    log::warning("{} is to pass through here, and its {} bytes do not fit the memory", key,
                 blob->bytes);
    return false;
  }
  return true;
}

void BlobRelay::publish(const std::string& key, const std::shared_ptr<Blob>& blob, IslandId putter,
                        bool is_heard) {
  store_.publish({.key = key,
                  .bytes = blob->bytes,
                  .chunk_bytes = blob->chunk_bytes,
                  .reader = [blob](std::uint64_t offset, std::span<std::byte> out) {
                    std::copy_n(blob->memory.get() + offset, out.size(), out.begin());
                  }});
  store_.allow_put({.key = kPutPrefix + key,
                    .bytes = blob->bytes,
                    .chunk_bytes = blob->chunk_bytes,
                    .writer =
                        [this, blob, key, putter, is_heard](std::uint64_t offset,
                                                            std::span<const std::byte> data) {
                          if (is_heard) heard_.note(putter);
                          blob->write(offset, data);
                          store_.mark(key, offset / blob->chunk_bytes);
                        },
                    .peer = Roster::name_of(putter)});
}

void BlobRelay::close(const std::string& key) {
  store_.withdraw(kPutPrefix + key);
  store_.withdraw(key);
}

bool BlobRelay::fits(const std::vector<std::uint64_t>& sizes, const char* what,
                     const char* and_so) {
  const std::uint64_t most = std::min(kMaxStateBytes, usable_memory());
  std::uint64_t left = most;
  bool fits = true;
  for (const std::uint64_t size : sizes) {
    fits = fits && size <= left;
    left -= std::min(left, size);
  }
  if (!fits && !is_told_of_memory_) {
    is_told_of_memory_ = true;
    log::warning(
        "{} not fit the memory here ({:.1f} GB){}. Give one of the islands an island.listen "
        "that the others reach",
        what, static_cast<double>(most) / 1e9, and_so);
  }
  return fits;
}

}  // namespace atl::island
