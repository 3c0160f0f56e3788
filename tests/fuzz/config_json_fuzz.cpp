#include "atoll/ckpt/gguf/config.h"
#include "atoll/ckpt/hf/weights.h"
#include "atoll/nn/models/family.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = atl::fuzz::text(data, size);
  atl::fuzz::expect_result_or_refusal([&] {
    const auto config = atl::nn::parse_config(text, "input");
    (void)atl::nn::config_json(config);
    // Building takes memory in proportion to the layers, and sizes a few machines could hold pass.
    if (config.num_layers <= 64) {
      (void)atl::nn::count_parameters(*atl::nn::build_model(config, {.max_positions = 1}));
      (void)atl::ckpt::gguf_model(config, "input");
    }
  });
  atl::fuzz::expect_result_or_refusal(
      [&] { (void)atl::ckpt::with_dtype(std::string(text), atl::Dtype::kBf16, "input"); });
  return 0;
}
