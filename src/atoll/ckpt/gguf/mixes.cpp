#include "atoll/ckpt/gguf/mixes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <iterator>

#include "atoll/base/check.h"
#include "atoll/base/error.h"

namespace atl::ckpt {

namespace {

using enum GgmlType;

constexpr GgufMix kMixes[] = {
    {"F32", kF32, 0},         {"BF16", kBf16, 32},   {"F16", kF16, 1},      {"Q8_0", kQ8_0, 7},
    {"Q6_K", kQ6_K, 18},      {"Q5_K_M", kQ5_K, 17}, {"Q5_K_S", kQ5_K, 16}, {"Q4_K_M", kQ4_K, 15},
    {"Q4_K_S", kQ4_K, 14},    {"Q3_K_L", kQ3_K, 13}, {"Q3_K_M", kQ3_K, 12}, {"Q3_K_S", kQ3_K, 11},
    {"MXFP4_MOE", kMxfp4, 38}};

// Of layers 0 to n - 1.
enum class Layers {
  kAll,
  kFirstTwo,
  kFirstFour,
  kFirstSixteenth,  // below n / 16, rounded down
  kFirstEighth,
  kMoreBits,  // the first eighth, the last eighth, and every third between
};

struct Rule {
  std::string_view mix;
  std::string_view tensor;  // between "blk.<layer>." and ".weight"
  Layers layers;
  GgmlType type;
};

// Of a mix's rules the first that fits counts. They are those of llama.cpp's llama-quant.cpp
// (llama_tensor_get_type_impl, 2026), but for one: Llama 70B, whose attn_v it raises to Q5_K.
// Experts' matrices have the rules of plain ones. attn_qkv counts as attn_v there. Beside these,
// the head is Q6_K in every K mix.
constexpr Rule kRules[] = {
    {"Q3_K_M", "attn_v", Layers::kFirstTwo, kQ5_K},
    {"Q3_K_M", "attn_v", Layers::kAll, kQ4_K},
    {"Q3_K_M", "attn_qkv", Layers::kFirstTwo, kQ5_K},
    {"Q3_K_M", "attn_qkv", Layers::kAll, kQ4_K},
    {"Q3_K_M", "attn_output", Layers::kAll, kQ4_K},
    {"Q3_K_M", "ffn_down", Layers::kFirstSixteenth, kQ5_K},
    {"Q3_K_M", "ffn_down", Layers::kAll, kQ4_K},
    {"Q3_K_L", "attn_v", Layers::kAll, kQ5_K},
    {"Q3_K_L", "attn_qkv", Layers::kAll, kQ5_K},
    {"Q3_K_L", "attn_output", Layers::kAll, kQ5_K},
    {"Q3_K_L", "ffn_down", Layers::kAll, kQ5_K},
    {"Q4_K_S", "attn_v", Layers::kFirstFour, kQ5_K},
    {"Q4_K_S", "attn_qkv", Layers::kFirstFour, kQ5_K},
    {"Q4_K_S", "ffn_down", Layers::kFirstEighth, kQ5_K},
    {"Q4_K_M", "attn_v", Layers::kMoreBits, kQ6_K},
    {"Q4_K_M", "attn_qkv", Layers::kMoreBits, kQ6_K},
    {"Q4_K_M", "ffn_down", Layers::kMoreBits, kQ6_K},
    {"Q5_K_M", "attn_v", Layers::kMoreBits, kQ6_K},
    {"Q5_K_M", "attn_qkv", Layers::kMoreBits, kQ6_K},
    {"Q5_K_M", "ffn_down", Layers::kMoreBits, kQ6_K},
};

// Of models with eight experts (Mixtral) these come first: beside the experts, attention is small.
// An empty mix is every K mix.
constexpr Rule kRulesOfEightExperts[] = {
    {"", "attn_v", Layers::kAll, kQ8_0},
    {"", "attn_k", Layers::kAll, kQ8_0},
    {"Q3_K_S", "attn_output", Layers::kAll, kQ5_K},
    {"Q3_K_M", "attn_output", Layers::kAll, kQ5_K},
    {"Q3_K_L", "attn_output", Layers::kAll, kQ3_K},
    {"Q4_K_S", "attn_output", Layers::kAll, kQ5_K},
    {"Q4_K_M", "attn_output", Layers::kAll, kQ5_K},
};

bool covers(Layers layers, std::int64_t layer, std::int64_t n) {
  switch (layers) {
    case Layers::kAll:
      return true;
    case Layers::kFirstTwo:
      return layer < 2;
    case Layers::kFirstFour:
      return layer < 4;
    case Layers::kFirstSixteenth:
      return layer < n / 16;
    case Layers::kFirstEighth:
      return layer < n / 8;
    case Layers::kMoreBits:
      return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
  }
  return false;
}

struct Place {
  std::int64_t layer = 0;
  std::string_view tensor;
};

// "blk.3.attn_v.weight": layer 3, attn_v.
std::optional<Place> place_of(std::string_view name) {
  constexpr std::string_view kBlock = "blk.";
  constexpr std::string_view kWeight = ".weight";
  if (!name.starts_with(kBlock)) return {};
  name.remove_prefix(kBlock.size());
  if (name.ends_with(kWeight)) name.remove_suffix(kWeight.size());
  Place place;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), place.layer);
  const auto digits = static_cast<std::size_t>(end - name.data());
  if (error != std::errc() || digits >= name.size() || name[digits] != '.') return {};
  place.tensor = name.substr(digits + 1);
  return place;
}

GgmlType wanted_type(const GgufMix& mix, const MixedTensor& tensor) {
  auto place = place_of(tensor.name);
  if (mix.base == kMxfp4) {
    return place && place->tensor.ends_with("_exps") ? kMxfp4 : kQ8_0;
  }
  if (ggml_layout(mix.base).block_elements != 256) return mix.base;
  if (tensor.is_head) return kQ6_K;
  if (!place) return mix.base;
  if (place->tensor.ends_with("_exps")) place->tensor.remove_suffix(5);
  const auto find = [&](std::span<const Rule> rules) -> std::optional<GgmlType> {
    for (const Rule& rule : rules) {
      const bool fits = (rule.mix.empty() || rule.mix == mix.name) && rule.tensor == place->tensor;
      if (fits && covers(rule.layers, place->layer, tensor.layers)) return rule.type;
    }
    return {};
  };
  if (tensor.experts == 8) {
    if (const auto type = find(kRulesOfEightExperts)) return *type;
  }
  return find(kRules).value_or(mix.base);
}

std::string upper(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return result;
}

}  // namespace

std::span<const GgufMix> gguf_mixes() {
  return kMixes;
}

GgufMix find_gguf_mix(std::string_view name) {
  std::string names;
  for (const GgufMix& mix : kMixes) {
    if (mix.name == upper(name)) return mix;
    names.append(names.empty() ? "" : ", ").append(mix.name);
  }
  throw user_error("\"{}\" is no type of GGUF files that atoll writes; there are {}", name, names);
}

GgufMix gguf_mix_of(GgmlType type) {
  const auto* found = std::find_if(std::begin(kMixes), std::end(kMixes),
                                   [&](const GgufMix& mix) { return mix.base == type; });
  ATOLL_CHECK(found != std::end(kMixes), "{}", ggml_layout(type).name);
  return *found;
}

std::optional<std::int64_t> gguf_layer(std::string_view tensor) {
  const auto place = place_of(tensor);
  if (!place) return {};
  return place->layer;
}

MixedType type_in_mix(const GgufMix& mix, const MixedTensor& tensor) {
  const GgmlType wanted = wanted_type(mix, tensor);
  // A plain type's rows that are no whole blocks are refused where they are written.
  const bool is_k = ggml_layout(wanted).block_elements == 256;
  if (!is_k || tensor.width % 256 == 0) return {wanted, {}};
  return {tensor.width % ggml_layout(kQ8_0).block_elements == 0 ? kQ8_0 : kF16, wanted};
}

}  // namespace atl::ckpt
