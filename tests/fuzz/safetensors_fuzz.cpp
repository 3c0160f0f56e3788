#include "atoll/ckpt/safetensors/safetensors.h"

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  atl::fuzz::expect_result_or_refusal([&] {
    const auto header = atl::ckpt::parse_safetensors(atl::fuzz::bytes(data, size), "input");
    // What was accepted must lie in the file.
    for (const auto& entry : header.entries) {
      if (entry.begin > entry.end || entry.end > size) std::abort();
    }
  });
  return 0;
}
