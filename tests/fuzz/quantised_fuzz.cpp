#include "atoll/ckpt/quantised/quantised.h"

#include <vector>

#include "atoll/ckpt/hf/directory.h"
#include "fuzz.h"

// The first line is config.json, the rest model.safetensors. What is accepted must widen.
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const atl::fuzz::Directory directory;
  const std::string_view text = atl::fuzz::text(data, size);
  const std::size_t end = text.find('\n');
  if (end == text.npos) return 0;
  directory.write("config.json", text.substr(0, end));
  directory.write("model.safetensors", text.substr(end + 1));
  atl::fuzz::expect_result_or_refusal([&] {
    const atl::ckpt::HfDirectory model(directory / "");
    const atl::ckpt::QuantisedWeights weights(model);
    for (const auto& [name, stored] : weights.all()) {
      std::vector<float> values(static_cast<std::size_t>(stored.shape.num_elements()));
      atl::ckpt::widen_stored(stored, values);
    }
  });
  return 0;
}
