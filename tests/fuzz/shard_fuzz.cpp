#include "atoll/data/shard.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "fuzz.h"

namespace {

void read_shard(const std::uint8_t* data, std::size_t size) {
  const atl::fuzz::MemoryFile file(data, size);
  atl::fuzz::expect_result_or_refusal([&] {
    const atl::data::Shard shard(file.path());
    std::vector<std::int32_t> tokens(shard.info().num_tokens);
    shard.copy(0, tokens);
    for (const std::int32_t token : tokens) {
      if (token < 0 || static_cast<std::uint64_t>(token) >= shard.info().vocab_size) std::abort();
    }
    std::vector<std::uint8_t> mask(tokens.size());
    shard.copy_mask(0, mask);
    if (std::any_of(mask.begin(), mask.end(), [](auto byte) { return byte > 1; })) std::abort();
    for (const std::uint64_t start : shard.document_starts()) {
      if (start >= shard.info().num_tokens) std::abort();
    }
  });
}

// Makes both hashes right (docs/data-format.md says where they are), so that what lies behind those
// checks is reached too.
void set_hashes(std::vector<std::uint8_t>& image) {
  constexpr std::size_t kVersion = 8;
  constexpr std::size_t kPayloadHash = 56;
  if (image.size() <= kVersion) return;
  const std::size_t header_hash = image[kVersion] == 2 ? 80 : 72;
  const std::size_t payload = header_hash + sizeof(atl::Hash128);
  if (image.size() < payload) return;
  atl::Hash128 hash = atl::hash_bytes(image.data() + payload, image.size() - payload);
  std::memcpy(image.data() + kPayloadHash, &hash, sizeof(hash));
  hash = atl::hash_bytes(image.data(), header_hash);
  std::memcpy(image.data() + header_hash, &hash, sizeof(hash));
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  read_shard(data, size);
  std::vector<std::uint8_t> image(data, data + size);
  set_hashes(image);
  read_shard(image.data(), image.size());
  return 0;
}
