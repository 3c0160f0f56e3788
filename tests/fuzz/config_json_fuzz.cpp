#include "atoll/nn/models/family.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  atl::fuzz::expect_result_or_refusal([&] {
    const auto config = atl::nn::parse_config(atl::fuzz::text(data, size), "input");
    // Building takes memory in proportion to the layers, and sizes a few machines could hold pass.
    if (config.num_layers <= 64) {
      (void)atl::nn::count_parameters(*atl::nn::build_model(config, {.max_positions = 1}));
    }
  });
  return 0;
}
