#include "atoll/model_dir/adapter.h"

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  atl::fuzz::expect_result_or_refusal([&] {
    const auto config = atl::model_dir::parse_adapter_config(atl::fuzz::text(data, size), "input");
    // What was accepted, written out, must be accepted again and mean the same.
    const std::string written = atl::model_dir::adapter_config_json(config, {});
    const auto again = atl::model_dir::parse_adapter_config(written, "again");
    if (again.lora.rank != config.lora.rank || again.lora.alpha != config.lora.alpha ||
        again.lora.targets != config.lora.targets || again.base != config.base ||
        again.lora.rank_stabilized != config.lora.rank_stabilized) {
      std::abort();
    }
  });
  return 0;
}
