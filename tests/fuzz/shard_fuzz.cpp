#include "atoll/data/shard.h"

#include <vector>

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const atl::fuzz::MemoryFile file(data, size);
  atl::fuzz::expect_result_or_refusal([&] {
    const atl::data::Shard shard(file.path());
    std::vector<std::int32_t> tokens(shard.info().num_tokens);
    shard.copy(0, tokens);
    for (const std::uint64_t start : shard.document_starts()) {
      if (start >= shard.info().num_tokens) std::abort();
    }
  });
  return 0;
}
