#include "atoll/ckpt/gguf/pre_tokenizers.h"

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

namespace atl::ckpt {

namespace {

using Json = nlohmann::ordered_json;

// The patterns are part of what the models are; each stands in the tokenizer.json of its model and
// under the same name in llama.cpp's llama-vocab.cpp.

constexpr const char* kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kGpt2WithoutLast =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))";
constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
                               R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct Known {
  const char* name;
  std::vector<std::string> splits;
  bool is_nfc = false;
  bool ignore_merges = false;
  bool add_bos = false;
};

// Among names that split alike, the first is written.
std::span<const Known> known() {
  static const std::vector<Known> kKnown = {
      {"gpt-2", {kGpt2}},
      {"olmo", {kGpt2}, true},  // GPT-NeoX's tokenizer, which Pythia and OLMo have
      {"smollm", {R"(\p{N})", kGpt2}},
      {"llama-bpe", {kLlama3}, false, true, true},
      {"qwen2", {kQwen2}, true},
      {"tekken", {kTekken}, false, true, true},
      {"default", {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2WithoutLast, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
      {"starcoder", {R"(\p{N})", kGpt2}},
      {"refact", {R"(\p{N})", kGpt2}},
      {"command-r", {R"(\p{N})", kGpt2}},
      {"codeshell", {R"(\p{N})", kGpt2}},
      {"llama3", {kLlama3}, false, true, true},
      {"llama-v3", {kLlama3}, false, true, true},
  };
  return kKnown;
}

Json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

std::string to_json(const Known& entry) {
  if (entry.splits.size() == 1 && entry.splits.front() == kGpt2) return byte_level(true).dump();
  Json steps = Json::array();
  for (const std::string& pattern : entry.splits) {
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", pattern}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  steps.push_back(byte_level(false));
  return Json({{"type", "Sequence"}, {"pretokenizers", steps}}).dump();
}

// The patterns by which one step splits; nothing when it does something else as well.
std::optional<std::vector<std::string>> splits_of(const Json& step) {
  const auto type = step.value("type", "");
  if (type == "ByteLevel") {
    if (step.value("add_prefix_space", true)) return {};
    return step.value("use_regex", true) ? std::vector<std::string>{kGpt2}
                                         : std::vector<std::string>{};
  }
  if (type == "Digits") {
    return std::vector<std::string>{step.value("individual_digits", false) ? R"(\p{N})"
                                                                           : R"(\p{N}+)"};
  }
  const bool is_plain = type == "Split" && step.value("behavior", "") == "Isolated" &&
                        !step.value("invert", false) && step.at("pattern").contains("Regex");
  if (!is_plain) return {};
  return std::vector<std::string>{step.at("pattern").at("Regex").get<std::string>()};
}

std::optional<std::vector<std::string>> all_splits(const Json& json) {
  std::vector<Json> steps = {json};
  if (json.value("type", "") == "Sequence") {
    steps = json.at("pretokenizers").get<std::vector<Json>>();
  }
  if (steps.empty() || steps.back().value("type", "") != "ByteLevel") return {};
  std::vector<std::string> patterns;
  for (const Json& step : steps) {
    const auto found = splits_of(step);
    if (!found) return {};
    patterns.insert(patterns.end(), found->begin(), found->end());
  }
  return patterns;
}

}  // namespace

std::string gguf_pre_tokenizer_names() {
  std::string names;
  for (const Known& entry : known()) names += (names.empty() ? "" : ", ") + std::string(entry.name);
  return names;
}

std::optional<GgufPreTokenizer> find_gguf_pre_tokenizer(std::string_view name) {
  for (const Known& entry : known()) {
    if (name == entry.name) {
      return GgufPreTokenizer{to_json(entry), entry.is_nfc, entry.ignore_merges, entry.add_bos};
    }
  }
  return {};
}

std::optional<std::string> name_gguf_pre_tokenizer(const std::string& pre_tokenizer, bool is_nfc,
                                                   bool ignore_merges) {
  try {
    const auto splits = all_splits(Json::parse(pre_tokenizer));
    for (const Known& entry : known()) {
      if (splits == entry.splits && is_nfc == entry.is_nfc &&
          ignore_merges == entry.ignore_merges) {
        return entry.name;
      }
    }
  } catch (const Json::exception&) {
    // Not of the shape of any known one.
  }
  return {};
}

}  // namespace atl::ckpt
