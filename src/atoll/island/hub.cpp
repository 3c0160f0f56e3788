#include "atoll/island/hub.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <new>
#include <span>

#include "atoll/base/cgroup.h"
#include "atoll/base/log.h"
#include "atoll/island/exchange.h"
#include "atoll/island/outer_state.h"

namespace atl::island {

namespace {

using Clock = std::chrono::steady_clock;

// Of one pseudo-gradient, or of all of a state.
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 36;
// State stays so long after the last one that was fetching: it may have lost its connection only.
constexpr std::chrono::seconds kStateStays{60};

}  // namespace

struct Hub::Blob {
  Blob(std::uint64_t bytes, std::uint64_t chunk_bytes, std::optional<StateHash> hash)
      : bytes(bytes),
        chunk_bytes(chunk_bytes),
        hash(hash),
        num_missing(wire::num_chunks(bytes, chunk_bytes)) {}

  // Each chunk once.
  void write(std::uint64_t offset, std::span<const std::byte> data) {
    std::copy(data.begin(), data.end(), memory.get() + offset);
    if (--num_missing > 0 || !hash) return;
    const auto* values = reinterpret_cast<const float*>(memory.get());
    is_wrong = hash_of({values, bytes / sizeof(float)}) != *hash;
  }
  bool is_whole() const { return num_missing == 0; }

  std::unique_ptr<std::byte[]> memory;  // not cleared: only chunks that came are read
  std::uint64_t bytes;
  std::uint64_t chunk_bytes;
  std::optional<StateHash> hash;  // of state: what all of it must have
  std::atomic<std::uint64_t> num_missing;
  std::atomic<bool> is_wrong = false;
};

Hub::Hub() = default;
Hub::~Hub() = default;

void Hub::offer(IslandId island, const Ready& ready) {
  offered_[island] = {ready.encoded_bytes, ready.chunk_bytes};
}

void Hub::serve(const Stamp& stamp, const Reduce& reduce) {
  // An island that was killed meanwhile may offer another one for the same outer step.
  if (const std::pair attempt(stamp.outer_step, stamp.attempt); attempt != deltas_for_) {
    for (const std::string& key : deltas_) close(key);
    deltas_.clear();
    deltas_for_ = attempt;
  }
  for (const Participant& participant : reduce.participants) {
    const std::string key = hub_key(stamp.outer_step, participant.island);
    const auto [bytes, chunk_bytes] = offered_[participant.island];
    const bool makes_sense =
        bytes > 0 && bytes <= kMaxBytes && chunk_bytes > 0 && chunk_bytes <= wire::kMaxChunkBytes;
    if (!makes_sense || deltas_.contains(key)) continue;
    if (open(key, std::make_shared<Blob>(bytes, chunk_bytes, std::nullopt), participant.island)) {
      deltas_.insert(key);
    }
  }
}

// A fragment that stays the same from one state to the next stays here.
std::optional<PutState> Hub::serve(const std::vector<std::uint64_t>& sizes, const PutState& put) {
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
  if (!fits(sizes)) return {};

  PutState missing = {std::vector<StateHash>(put.hashes.size())};
  for (std::size_t f = 0; f < num_fragments; ++f) {
    const std::string key = state_key(put.hashes[f]);
    if (!states_.contains(key)) {
      const auto blob =
          std::make_shared<Blob>(sizes[f], state_chunk_bytes(sizes[f]), put.hashes[f]);
      if (sizes[f] == 0 || !open(key, blob)) continue;
      states_[key] = blob;
    }
    if (!states_[key]->is_whole()) missing.hashes[f] = put.hashes[f];
  }
  const bool is_any = std::any_of(missing.hashes.begin(), missing.hashes.end(),
                                  [](const StateHash& hash) { return hash != StateHash{}; });
  return is_any ? std::optional(missing) : std::nullopt;
}

void Hub::tick(bool is_anybody_fetching) {
  if (states_.empty()) return;
  if (is_anybody_fetching) {
    states_stay_until_ = Clock::now() + kStateStays;
  } else if (Clock::now() > states_stay_until_) {
    for (const auto& [key, blob] : states_) close(key);
    states_.clear();
  }
}

// False where there is no memory for it.
bool Hub::open(const std::string& key, const std::shared_ptr<Blob>& blob, IslandId from) {
  blob->memory.reset(new (std::nothrow) std::byte[blob->bytes]);
  if (!blob->memory) {
    if (is_told_of_memory_) return false;
    is_told_of_memory_ = true;
    log::warning("{} is to pass through here, and its {} bytes do not fit the memory", key,
                 blob->bytes);
    return false;
  }
  store_.publish({.key = key,
                  .bytes = blob->bytes,
                  .chunk_bytes = blob->chunk_bytes,
                  .reader = [blob](std::uint64_t offset, std::span<std::byte> out) {
                    std::copy_n(blob->memory.get() + offset, out.size(), out.begin());
                  }});
  store_.allow_put(
      {.key = kPutPrefix + key,
       .bytes = blob->bytes,
       .chunk_bytes = blob->chunk_bytes,
       .writer = [this, blob, key, from](std::uint64_t offset, std::span<const std::byte> data) {
         if (from != kNobody) heard_.note(from);
         blob->write(offset, data);
         store_.mark(key, offset / blob->chunk_bytes);
       }});
  return true;
}

void Hub::close(const std::string& key) {
  store_.withdraw(kPutPrefix + key);
  store_.withdraw(key);
}

bool Hub::fits(const std::vector<std::uint64_t>& sizes) {
  const std::uint64_t most = std::min(kMaxBytes, usable_memory());
  std::uint64_t left = most;
  bool fits = true;
  for (const std::uint64_t size : sizes) {
    fits = fits && size <= left;
    left -= std::min(left, size);
  }
  if (!fits && !is_told_of_memory_) {
    is_told_of_memory_ = true;
    log::warning(
        "the run's state does not fit the memory here ({:.1f} GB): an island that reaches no other "
        "one cannot fetch it. Give one of them an island.listen that the others reach",
        static_cast<double>(most) / 1e9);
  }
  return fits;
}

}  // namespace atl::island
