#include "atoll/ckpt/hf/further_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "atoll/base/json.h"

namespace atl::ckpt {

FurtherBlocks::FurtherBlocks(const HfDirectory& directory) {
  const std::string& text = directory.config_json();
  if (text.find("\"num_nextn_predict_layers\"") == std::string::npos) return;
  const nlohmann::json json = parse_json(text, (directory.path() / "config.json").string());
  const auto number = [&](const char* field) {
    const auto at = json.find(field);
    return at != json.end() && at->is_number_integer() ? at->get<std::int64_t>() : 0;
  };
  const std::int64_t layers = number("num_hidden_layers");
  constexpr std::int64_t kMost = 64;  // DeepSeek V3 has one
  for (std::int64_t i = 0; i < std::min(number("num_nextn_predict_layers"), kMost); ++i) {
    prefixes_.push_back(fmt::format("model.layers.{}.", layers + i));
  }
}

bool FurtherBlocks::has(std::string_view tensor) const {
  return std::any_of(prefixes_.begin(), prefixes_.end(),
                     [&](const std::string& prefix) { return tensor.starts_with(prefix); });
}

}  // namespace atl::ckpt
