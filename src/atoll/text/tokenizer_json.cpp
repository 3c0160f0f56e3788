#include <algorithm>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "atoll/base/error.h"
#include "atoll/base/nesting.h"
#include "atoll/text/tokenizer_spec.h"
#include "atoll/text/utf8.h"

// Every key is either understood or refused by name: a key that is skipped here would be a
// tokenizer that is subtly not the one in the file.

namespace atl::text {

namespace {

using Json = nlohmann::json;

constexpr int kMaxNesting = 64;  // real files have less than 10 levels

std::string type_of(const Json& value) {
  if (!value.is_object()) return value.is_null() ? "null" : value.type_name();
  const auto type = value.find("type");
  return type != value.end() && type->is_string() ? type->get<std::string>() : "untyped";
}

class Parser {
 public:
  explicit Parser(std::string_view origin) : origin_(origin) {}

  TokenizerSpec parse(std::string_view text) {
    if (const int depth = nesting_depth(text); depth > kMaxNesting) {
      throw damaged_error("{}: nested {} levels deep, which no tokenizer is", origin_, depth);
    }
    Json root;
    try {
      root = Json::parse(text);
    } catch (const Json::exception& error) {
      throw damaged_error("{}: not valid JSON: {}", origin_, error.what());
    }
    object(root, "the file",
           {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
            "post_processor", "decoder", "model"});
    if (root.contains("version") && root["version"] != "1.0") {
      refuse("version", root["version"].dump(), "only \"1.0\" is known");
    }
    for (const char* key : {"truncation", "padding"}) {
      if (root.contains(key) && !root[key].is_null()) {
        refuse(key, "a setting", "set it to null: atoll cuts and pads itself");
      }
    }
    TokenizerSpec spec;
    model(need(root, "model", "the file"), spec.model);
    if (root.contains("added_tokens")) added_tokens(root["added_tokens"], spec.added_tokens);
    if (root.contains("normalizer")) normalizer(root["normalizer"], "normalizer", spec);
    pre_tokenizers(need(root, "pre_tokenizer", "the file"), spec);
    if (root.contains("post_processor")) {
      post_processor(root["post_processor"], "post_processor", spec);
    }
    decoder(need(root, "decoder", "the file"), spec);
    return spec;
  }

 private:
  [[noreturn]] void damaged(std::string_view where, std::string_view what) const {
    throw damaged_error("{}: {}: {}", origin_, where, what);
  }
  [[noreturn]] void refuse(std::string_view where, std::string_view what,
                           std::string_view advice) const {
    throw user_error("{}: {} has {}, which is not supported ({})", origin_, where, what, advice);
  }

  void object(const Json& value, std::string_view where,
              std::initializer_list<std::string_view> known) const {
    if (!value.is_object())
      damaged(where, fmt::format("must be an object, not {}", type_of(value)));
    for (const auto& [key, unused] : value.items()) {
      if (std::find(known.begin(), known.end(), key) == known.end()) {
        refuse(where, fmt::format("the key \"{}\"", key), "it could change the result");
      }
    }
  }
  const Json& need(const Json& value, const char* key, std::string_view where) const {
    if (!value.is_object())
      damaged(where, fmt::format("must be an object, not {}", type_of(value)));
    const auto found = value.find(key);
    if (found == value.end()) damaged(where, fmt::format("the key \"{}\" is missing", key));
    return *found;
  }
  const Json& array(const Json& value, std::string_view where) const {
    if (!value.is_array()) damaged(where, fmt::format("must be an array, not {}", type_of(value)));
    return value;
  }
  std::string text(const Json& value, std::string_view where) const {
    if (!value.is_string()) damaged(where, fmt::format("must be a string, not {}", value.dump()));
    return value.get<std::string>();
  }
  bool flag(const Json& value, const char* key, bool otherwise, std::string_view where) const {
    const auto found = value.find(key);
    if (found == value.end()) return otherwise;
    if (!found->is_boolean()) damaged(where, fmt::format("\"{}\" must be true or false", key));
    return found->get<bool>();
  }
  std::int32_t id(const Json& value, std::string_view where) const {
    constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
    if (!value.is_number_integer() || (value.is_number_unsigned() && value > kMax) || value < 0) {
      damaged(where, fmt::format("{} is not a token id", value.dump()));
    }
    return value.get<std::int32_t>();
  }

  void model(const Json& json, BpeSpec& spec) const {
    if (json.is_object() && json.contains("type") && json["type"] != "BPE") {
      refuse("model", "the type " + type_of(json), "only BPE is");
    }
    object(json, "model",
           {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
            "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
    if (json.contains("dropout") && !json["dropout"].is_null() && json["dropout"] != 0) {
      refuse("model", "dropout " + json["dropout"].dump(), "set it to null");
    }
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (json.contains(key) && !json[key].is_null() && json[key] != "") {
        refuse("model", fmt::format("{} {}", key, json[key].dump()), "set it to null");
      }
    }
    spec.ignore_merges = flag(json, "ignore_merges", false, "model");
    // What happens to unknown characters; a byte-level model has none.
    spec.byte_fallback = flag(json, "byte_fallback", false, "model");
    spec.fuse_unk = flag(json, "fuse_unk", false, "model");
    if (json.contains("unk_token") && !json["unk_token"].is_null()) {
      spec.unk_token = text(json["unk_token"], "model.unk_token");
    }
    const Json& vocab = need(json, "vocab", "model");
    if (!vocab.is_object()) damaged("model.vocab", "must be an object of tokens and ids");
    spec.vocab.reserve(vocab.size());
    for (const auto& [token, value] : vocab.items()) {
      spec.vocab.emplace_back(token, id(value, fmt::format("model.vocab[\"{}\"]", token)));
    }
    const Json& list = array(need(json, "merges", "model"), "model.merges");
    spec.merges.reserve(list.size());
    for (const Json& entry : list) spec.merges.push_back(merge(entry, spec.merges.size()));
  }

  std::pair<std::string, std::string> merge(const Json& entry, std::size_t rank) const {
    if (entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string()) {
      return {entry[0].get<std::string>(), entry[1].get<std::string>()};
    }
    if (entry.is_string()) {
      const auto pair = entry.get<std::string>();
      const std::size_t space = pair.find(' ');
      if (space != std::string::npos && pair.find(' ', space + 1) == std::string::npos) {
        return {pair.substr(0, space), pair.substr(space + 1)};
      }
    }
    damaged(fmt::format("model.merges[{}]", rank),
            fmt::format("{} is neither \"a b\" nor [\"a\", \"b\"]", entry.dump()));
  }

  void added_tokens(const Json& json, std::vector<AddedToken>& tokens) const {
    std::set<std::string> seen;
    for (const Json& entry : array(json, "added_tokens")) {
      const std::string where = fmt::format("added_tokens[{}]", tokens.size());
      object(entry, where,
             {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
      AddedToken token;
      token.id = id(need(entry, "id", where), where + ".id");
      token.content = text(need(entry, "content", where), where + ".content");
      token.lstrip = flag(entry, "lstrip", false, where);
      token.rstrip = flag(entry, "rstrip", false, where);
      token.special = flag(entry, "special", false, where);
      token.normalized = flag(entry, "normalized", false, where);
      if (token.content.empty()) damaged(where, "the content is empty");
      // Every position of a text is compared with it.
      constexpr std::size_t kLongest = 1024;
      if (token.content.size() > kLongest) {
        damaged(where, fmt::format("the content is {} bytes long; at most {} are allowed",
                                   token.content.size(), kLongest));
      }
      if (!seen.insert(token.content).second) {
        damaged(where, fmt::format("\"{}\" is there twice", token.content));
      }
      if (flag(entry, "single_word", false, where)) {
        refuse(where, "single_word", "only tokens that match anywhere are");
      }
      tokens.push_back(std::move(token));
    }
  }

  void normalizer(const Json& json, const std::string& where, TokenizerSpec& spec) const {
    if (json.is_null()) return;
    const std::string type = type_of(json);
    if (type == "Sequence") {
      object(json, where, {"type", "normalizers"});
      for (const Json& entry : array(need(json, "normalizers", where), where)) {
        normalizer(entry, where + ".Sequence", spec);
      }
      return;
    }
    using Kind = NormalizerStep::Kind;
    NormalizerStep step;
    if (type == "Prepend") {
      object(json, where, {"type", "prepend"});
      step.kind = Kind::kPrepend;
      step.content = text(need(json, "prepend", where), where + ".prepend");
    } else if (type == "Replace") {
      object(json, where, {"type", "pattern", "content"});
      step.kind = Kind::kReplace;
      std::tie(step.pattern, step.literal) = pattern(json, where);
      step.content = text(need(json, "content", where), where + ".content");
    } else if (type == "Lowercase") {
      object(json, where, {"type"});
      step.kind = Kind::kLowercase;
    } else if (type == "Strip") {
      object(json, where, {"type", "strip_left", "strip_right"});
      step.kind = Kind::kStrip;
      step.left = flag(json, "strip_left", true, where);
      step.right = flag(json, "strip_right", true, where);
    } else {
      step.form = normal_form(json, type, where);
    }
    spec.normalizers.push_back(std::move(step));
  }

  NormalForm normal_form(const Json& json, const std::string& type,
                         const std::string& where) const {
    constexpr std::pair<std::string_view, NormalForm> kForms[] = {{"NFC", NormalForm::kNfc},
                                                                  {"NFD", NormalForm::kNfd},
                                                                  {"NFKC", NormalForm::kNfkc},
                                                                  {"NFKD", NormalForm::kNfkd}};
    for (const auto& [name, form] : kForms) {
      if (type != name) continue;
      object(json, where, {"type"});
      return form;
    }
    refuse(where, "the type " + type,
           "NFC, NFD, NFKC, NFKD, Prepend, Replace, Lowercase, Strip and Sequence are");
  }

  // The "pattern" of a step: a regular expression or (true) literal text.
  std::pair<std::string, bool> pattern(const Json& json, const std::string& where) const {
    const Json& value = need(json, "pattern", where);
    object(value, where + ".pattern", {"Regex", "String"});
    if (value.size() != 1) damaged(where + ".pattern", "must hold one of Regex and String");
    return {text(value.front(), where + ".pattern"), value.contains("String")};
  }

  void pre_tokenizers(const Json& json, TokenizerSpec& spec) const {
    const std::string where = "pre_tokenizer";
    std::vector<const Json*> steps = {&json};
    spec.model.byte_level = false;
    if (json.is_null()) return;
    if (type_of(json) == "Sequence") {
      object(json, where, {"type", "pretokenizers"});
      steps.clear();
      for (const Json& step : array(need(json, "pretokenizers", where), where)) {
        steps.push_back(&step);
      }
    }
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (spec.model.byte_level) {
        refuse(where, fmt::format("{} as step {} of {}", type_of(*steps[i]), i + 1, steps.size()),
               "ByteLevel must be the last step");
      }
      spec.model.byte_level = type_of(*steps[i]) == "ByteLevel";
      pre_tokenizer_step(*steps[i], where, spec);
    }
  }

  void pre_tokenizer_step(const Json& json, const std::string& where, TokenizerSpec& spec) const {
    using Kind = PreTokenizerStep::Kind;
    const std::string type = type_of(json);
    if (type == "ByteLevel") {
      object(json, where, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
      if (flag(json, "add_prefix_space", true, where)) {
        spec.pre_tokenizer.push_back({.kind = Kind::kPrefixSpace});
      }
      if (flag(json, "use_regex", true, where)) {
        spec.pre_tokenizer.push_back({.pattern = std::string(kGpt2Pattern)});
      }
    } else if (type == "Digits") {
      object(json, where, {"type", "individual_digits"});
      const bool individual = flag(json, "individual_digits", false, where);
      spec.pre_tokenizer.push_back({.pattern = individual ? R"(\p{N})" : R"(\p{N}+)"});
    } else if (type == "Split") {
      split(json, where, spec);
    } else if (type == "Metaspace") {
      object(json, where, {"type", "replacement", "prepend_scheme", "split"});
      spec.pre_tokenizer.push_back({.kind = Kind::kMetaspace,
                                    .pattern = replacement(json, where),
                                    .prepend = prepend_scheme(json, where),
                                    .split = flag(json, "split", true, where)});
    } else {
      refuse(where, "the type " + type, "ByteLevel, Split, Digits, Metaspace and Sequence are");
    }
  }

  // What Metaspace writes for a space: one character.
  std::string replacement(const Json& json, const std::string& where) const {
    std::string value = text(need(json, "replacement", where), where + ".replacement");
    if (value.empty() || utf8_step(value).size != value.size() || value == " ") {
      damaged(where,
              fmt::format("the replacement \"{}\" must be one character, not a space", value));
    }
    return value;
  }

  PreTokenizerStep::Prepend prepend_scheme(const Json& json, const std::string& where) const {
    using Prepend = PreTokenizerStep::Prepend;
    if (!json.contains("prepend_scheme")) return Prepend::kAlways;
    const std::string scheme = text(json["prepend_scheme"], where + ".prepend_scheme");
    if (scheme == "always") return Prepend::kAlways;
    if (scheme == "first") return Prepend::kFirst;
    if (scheme != "never") refuse(where, "prepend_scheme " + scheme, "always, first and never are");
    return Prepend::kNever;
  }

  void split(const Json& json, const std::string& where, TokenizerSpec& spec) const {
    using Behavior = PreTokenizerStep::Behavior;
    constexpr std::pair<std::string_view, Behavior> kBehaviors[] = {
        {"Isolated", Behavior::kIsolated},
        {"Removed", Behavior::kRemoved},
        {"MergedWithPrevious", Behavior::kMergedWithPrevious},
        {"MergedWithNext", Behavior::kMergedWithNext},
        {"Contiguous", Behavior::kContiguous}};
    object(json, where, {"type", "pattern", "behavior", "invert"});
    PreTokenizerStep step;
    std::tie(step.pattern, step.literal) = pattern(json, where);
    const std::string name = text(need(json, "behavior", where), where + ".behavior");
    const auto* found = std::find_if(std::begin(kBehaviors), std::end(kBehaviors),
                                     [&](const auto& known) { return known.first == name; });
    if (found == std::end(kBehaviors)) {
      refuse(where, "the behavior " + name,
             "Isolated, Removed, MergedWithPrevious, MergedWithNext and Contiguous are");
    }
    step.behavior = found->second;
    step.invert = flag(json, "invert", false, where);
    spec.pre_tokenizer.push_back(std::move(step));
  }

  void post_processor(const Json& json, const std::string& where, TokenizerSpec& spec) const {
    if (json.is_null()) return;
    const std::string type = type_of(json);
    if (type == "ByteLevel") {
      // Moves offsets only, and ids are all that atoll returns.
      object(json, where, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
    } else if (type == "Sequence") {
      object(json, where, {"type", "processors"});
      for (const Json& entry : array(need(json, "processors", where), where)) {
        post_processor(entry, where + ".Sequence", spec);
      }
    } else if (type == "TemplateProcessing") {
      if (!spec.prefix_ids.empty() || !spec.suffix_ids.empty()) {
        refuse(where, "a second TemplateProcessing", "one is");
      }
      template_processing(json, where, spec);
    } else {
      refuse(where, "the type " + type, "ByteLevel, TemplateProcessing and Sequence are");
    }
  }

  void template_processing(const Json& json, const std::string& where, TokenizerSpec& spec) const {
    object(json, where, {"type", "single", "pair", "special_tokens"});
    int num_texts = 0;
    for (const Json& piece : array(need(json, "single", where), where + ".single")) {
      object(piece, where + ".single", {"SpecialToken", "Sequence"});
      if (piece.contains("Sequence")) {
        ++num_texts;
        continue;
      }
      const std::string name = text(
          need(need(piece, "SpecialToken", where + ".single"), "id", where + ".single"), where);
      const Json& tokens = need(json, "special_tokens", where);
      const Json& ids = need(need(tokens, name.c_str(), where + ".special_tokens"), "ids", where);
      for (const Json& value : array(ids, where + ".special_tokens")) {
        auto& side = num_texts == 0 ? spec.prefix_ids : spec.suffix_ids;
        side.push_back(id(value, where + ".special_tokens"));
      }
    }
    if (num_texts != 1) refuse(where, "a template without exactly one text", "one is");
  }

  void decoder(const Json& json, TokenizerSpec& spec) const {
    std::vector<const Json*> steps = {&json};
    if (type_of(json) == "Sequence") {
      object(json, "decoder", {"type", "decoders"});
      steps.clear();
      for (const Json& step : array(need(json, "decoders", "decoder"), "decoder")) {
        steps.push_back(&step);
      }
    }
    if (steps.size() == 1 && type_of(*steps[0]) == "ByteLevel") {
      object(*steps[0], "decoder", {"type", "add_prefix_space", "trim_offsets", "use_regex"});
      if (spec.model.byte_level) return;
      refuse("decoder", "ByteLevel without a pre_tokenizer ByteLevel", "both are, or neither");
    }
    if (spec.model.byte_level) {
      refuse("decoder", "the type " + type_of(json),
             "with a pre_tokenizer ByteLevel, ByteLevel is");
    }
    if (json.is_null()) {
      refuse("decoder", "the type null", "it puts spaces between tokens, which no text had");
    }
    bool fused = false;
    for (const Json* step : steps) fused = decoder_step(*step, fused, spec);
  }

  // Returns whether the steps so far have joined the tokens.
  bool decoder_step(const Json& json, bool fused, TokenizerSpec& spec) const {
    const std::string where = "decoder";
    const std::string type = type_of(json);
    DecoderSpec& decoder = spec.decoder;
    if (type == "Strip") {
      object(json, where, {"type", "content", "start", "stop"});
      const std::int32_t stop = json.contains("stop") ? id(json["stop"], "decoder.stop") : 0;
      if (!fused || stop != 0 || decoder.strip_count != 0) {
        refuse(where, "a Strip", "only one that strips the start, after Fuse, is");
      }
      decoder.strip = text(need(json, "content", where), "decoder.content");
      decoder.strip_count = json.contains("start") ? id(json["start"], "decoder.start") : 0;
      if (decoder.strip.size() != 1 || static_cast<unsigned char>(decoder.strip[0]) >= 0x80) {
        refuse(where, fmt::format("Strip of \"{}\"", decoder.strip), "an ASCII character is");
      }
      return true;
    }
    if (fused) refuse(where, type + " after Fuse", "only Strip is");
    if (type == "Fuse") {
      object(json, where, {"type"});
      return true;
    }
    if (type == "Replace") {
      object(json, where, {"type", "pattern", "content"});
      auto [from, literal] = pattern(json, where);
      if (!literal || from.empty()) refuse(where, "Replace by regular expression", "text is");
      decoder.replace.emplace_back(std::move(from), text(need(json, "content", where), where));
    } else if (type == "ByteFallback") {
      object(json, where, {"type"});
      decoder.byte_fallback = true;
    } else if (type == "Metaspace" && decoder.replace.empty()) {
      object(json, where, {"type", "replacement", "prepend_scheme", "split"});
      const std::string space = replacement(json, where);
      decoder.replace.emplace_back(space, " ");
      if (prepend_scheme(json, where) != PreTokenizerStep::Prepend::kNever) {
        decoder.first_removes = space;
      }
    } else {
      refuse(where, "the type " + type,
             "ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace and Sequence are");
    }
    return false;
  }

  std::string origin_;
};

}  // namespace

TokenizerSpec parse_tokenizer_json(std::string_view json, std::string_view origin) {
  return Parser(origin).parse(json);
}

}  // namespace atl::text
