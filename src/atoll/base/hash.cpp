#include "atoll/base/hash.h"

#include <xxhash.h>

#include "atoll/base/check.h"

namespace atl {

struct Hasher::State {
  XXH3_state_t* xxh = XXH3_createState();
  State() { ATOLL_CHECK(xxh != nullptr && XXH3_128bits_reset(xxh) == XXH_OK); }
  ~State() { XXH3_freeState(xxh); }
};

Hasher::Hasher() : state_(std::make_unique<State>()) {}
Hasher::~Hasher() = default;

void Hasher::update(const void* data, std::size_t size) {
  if (size == 0) return;  // xxHash refuses a null pointer, which an empty vector gives
  ATOLL_CHECK(XXH3_128bits_update(state_->xxh, data, size) == XXH_OK);
}

Hash128 Hasher::digest() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh);
  return {hash.high64, hash.low64};
}

Hash128 hash_bytes(const void* data, std::size_t size) {
  const XXH128_hash_t hash = XXH3_128bits(data, size);
  return {hash.high64, hash.low64};
}

std::string to_hex(Hash128 hash) {
  return fmt::format("{:016x}{:016x}", hash.high, hash.low);
}

}  // namespace atl
