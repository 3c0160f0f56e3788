#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "atoll/base/check.h"
#include "atoll/text/tokenizer_spec.h"

// Written by hand, in Hugging Face's order of keys: vocabularies are listed by id, which a JSON
// library's sorted objects cannot do and its ordered ones do in quadratic time.

namespace atl::text {

namespace {

std::string json_string(std::string_view text) {
  return nlohmann::json(text).dump();
}

std::string added_tokens_json(const std::vector<AddedToken>& tokens) {
  std::string out = "[";
  for (const AddedToken& token : tokens) {
    out += fmt::format(
        "{}\n    {{\n      \"id\": {},\n      \"content\": {},\n      \"single_word\": false,\n"
        "      \"lstrip\": {},\n      \"rstrip\": {},\n      \"normalized\": {},\n"
        "      \"special\": {}\n    }}",
        &token == &tokens.front() ? "" : ",", token.id, json_string(token.content), token.lstrip,
        token.rstrip, token.normalized, token.special);
  }
  return out + (tokens.empty() ? "]" : "\n  ]");
}

std::string byte_level_json(bool use_regex) {
  return fmt::format(R"({{"type": "ByteLevel", "add_prefix_space": false, )"
                     R"("trim_offsets": true, "use_regex": {}}})",
                     use_regex);
}

std::string pre_tokenizer_json(const TokenizerSpec& spec) {
  const auto& steps = spec.pre_tokenizer;
  if (!spec.model.byte_level) {
    ATOLL_CHECK(steps.empty(), "a new tokenizer of characters has no words");
    return "null";
  }
  if (steps.empty()) return byte_level_json(false);
  ATOLL_CHECK(steps.size() == 1 && steps[0].kind == PreTokenizerStep::Kind::kSplit &&
                  steps[0].behavior == PreTokenizerStep::Behavior::kIsolated && !steps[0].literal,
              "a trained tokenizer has one pattern, not {} steps", steps.size());
  if (steps[0].pattern == kGpt2Pattern) return byte_level_json(true);
  return fmt::format(
      R"({{"type": "Sequence", "pretokenizers": [
    {{"type": "Split", "pattern": {{"Regex": {}}}, "behavior": "Isolated", "invert": false}},
    {}
  ]}})",
      json_string(steps[0].pattern), byte_level_json(false));
}

std::string model_json(const BpeSpec& model) {
  std::string out =
      "{\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
      "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n"
      "    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n";
  out += fmt::format("    \"ignore_merges\": {},\n    \"vocab\": {{", model.ignore_merges);
  std::string_view comma;
  for (const auto& [token, id] : model.vocab) {
    out += fmt::format("{}\n      {}: {}", comma, json_string(token), id);
    comma = ",";
  }
  out += "\n    },\n    \"merges\": [";
  comma = "";
  for (const auto& [left, right] : model.merges) {
    out += fmt::format("{}\n      [{}, {}]", comma, json_string(left), json_string(right));
    comma = ",";
  }
  return out + (model.merges.empty() ? "]\n  }" : "\n    ]\n  }");
}

}  // namespace

std::string write_tokenizer_json(const TokenizerSpec& spec) {
  ATOLL_CHECK(spec.normalizers.empty() && spec.prefix_ids.empty() && spec.suffix_ids.empty(),
              "a trained tokenizer has neither normalizers nor a template");
  const bool bytes = spec.model.byte_level;
  return fmt::format(
      "{{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n"
      "  \"added_tokens\": {},\n  \"normalizer\": null,\n  \"pre_tokenizer\": {},\n"
      "  \"post_processor\": {},\n  \"decoder\": {},\n  \"model\": {}\n}}\n",
      added_tokens_json(spec.added_tokens), pre_tokenizer_json(spec),
      bytes ? byte_level_json(true) : "null", bytes ? byte_level_json(true) : R"({"type": "Fuse"})",
      model_json(spec.model));
}

}  // namespace atl::text
