#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "atoll/base/error.h"
#include "atoll/compress/codecs.h"

namespace atl::compress {

namespace {

struct Entry {
  const char* name;
  std::unique_ptr<Codec> (*make)();  ///< null: it has parameters
  std::unique_ptr<Codec> (*make_with)(std::string_view) = nullptr;
};

constexpr Entry kCodecs[] = {
    {"f32", make_f32},
    {"bf16", make_bf16},
    {"int8", make_int8},
    {"int4", make_int4},
    {"e3m0", make_e3m0},
    {"topk", nullptr, make_topk},
    {"sign_prune", nullptr, make_sign_prune},
};

constexpr auto kNames = [] {
  std::array<const char*, std::size(kCodecs)> names{};
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = kCodecs[i].name;
  return names;
}();

}  // namespace

std::span<const char* const> codec_names() {
  return kNames;
}

std::unique_ptr<Codec> make_codec(const std::string& name) {
  const std::size_t colon = std::min(name.find(':'), name.size());
  const std::string_view parameters =
      std::string_view(name).substr(std::min(colon + 1, name.size()));
  for (const Entry& entry : kCodecs) {
    if (name.compare(0, colon, entry.name) != 0) continue;
    const bool has_colon = colon < name.size();
    if (entry.make_with != nullptr && has_colon == !parameters.empty()) {
      return entry.make_with(parameters);
    }
    if (entry.make != nullptr && !has_colon) return entry.make();
    throw user_error("codec '{}': {} parameters after {}", name,
                     entry.make == nullptr ? "there must be" : "there are no", entry.name);
  }
  throw user_error("there is no codec '{}': choose {}", name, fmt::join(kNames, ", "));
}

}  // namespace atl::compress
