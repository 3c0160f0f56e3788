#include <nlohmann/json.hpp>
#include <tuple>

#include "atoll/base/error.h"
#include "atoll/text/tokenizer_json/tokenizer_json_reader.h"

// How a text is cut into words before the model, and what is done to tokens after it.

namespace atl::text {

namespace {

class StepsParser : public JsonReader {
 public:
  using JsonReader::JsonReader;

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
    for (const Json* step : steps) {
      pre_tokenizer_step(*step, where, spec);
      if (type_of(*step) != "ByteLevel") continue;
      // Words of bytes are faster than their spelling, which steps after it and other models see.
      const bool as_bytes = step == steps.back() && spec.model_kind == ModelKind::kBpe;
      spec.model.byte_level = as_bytes;
      if (!as_bytes) spec.pre_tokenizer.push_back({.kind = PreTokenizerStep::Kind::kByteLevel});
    }
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
      spec.decoder.byte_level = true;
      return;
    }
    if (spec.model.byte_level) {
      refuse("decoder", "the type " + type_of(json),
             "with a pre_tokenizer ByteLevel, ByteLevel is");
    }
    if (json.is_null()) {
      spec.decoder.spaces = true;
      return;
    }
    if (steps.size() == 1 && type_of(*steps[0]) == "WordPiece") {
      return word_piece_decoder(*steps[0], spec.decoder);
    }
    bool fused = false;
    for (const Json* step : steps) fused = decoder_step(*step, fused, spec);
  }

 private:
  // `str_rep` is the replacement again, in old files.
  void metaspace_keys(const Json& json, const std::string& where) const {
    object(json, where,
           {"type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"});
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
      metaspace_keys(json, where);
      spec.pre_tokenizer.push_back({.kind = Kind::kMetaspace,
                                    .pattern = replacement(json, where),
                                    .prepend = prepend_scheme(json, where),
                                    .split = flag(json, "split", true, where)});
    } else {
      split_by_class(json, type, where, spec);
    }
  }

  void split_by_class(const Json& json, const std::string& type, const std::string& where,
                      TokenizerSpec& spec) const {
    using Behavior = PreTokenizerStep::Behavior;
    const PreTokenizerStep no_spaces = {.pattern = R"(\s+)", .behavior = Behavior::kRemoved};
    const std::string mark = fmt::format("[{}]", regex_ranges(CharClass::kPunctuation));
    if (type == "WhitespaceSplit") {
      object(json, where, {"type"});
      spec.pre_tokenizer.push_back(no_spaces);
    } else if (type == "Whitespace") {
      object(json, where, {"type"});
      const std::string word = regex_ranges(CharClass::kWord);
      spec.pre_tokenizer.push_back({.pattern = fmt::format(R"([{}]+|[^{}\s]+)", word, word),
                                    .invert = true,
                                    .behavior = Behavior::kRemoved});
    } else if (type == "BertPreTokenizer") {
      object(json, where, {"type"});
      spec.pre_tokenizer.push_back(no_spaces);
      spec.pre_tokenizer.push_back({.pattern = mark});
    } else if (type == "Punctuation") {
      object(json, where, {"type", "behavior"});
      spec.pre_tokenizer.push_back({.pattern = mark, .behavior = behavior(json, where)});
    } else if (type == "CharDelimiterSplit") {
      object(json, where, {"type", "delimiter"});
      spec.pre_tokenizer.push_back({.pattern = text(need(json, "delimiter", where), where),
                                    .literal = true,
                                    .behavior = Behavior::kRemoved});
    } else {
      refuse(where, "the type " + type,
             "ByteLevel, Split, Digits, Metaspace, Whitespace, WhitespaceSplit, Punctuation, "
             "CharDelimiterSplit, BertPreTokenizer and Sequence are");
    }
  }

  void split(const Json& json, const std::string& where, TokenizerSpec& spec) const {
    object(json, where, {"type", "pattern", "behavior", "invert"});
    PreTokenizerStep step;
    std::tie(step.pattern, step.literal) = pattern(json, where);
    need(json, "behavior", where);
    step.behavior = behavior(json, where);
    step.invert = flag(json, "invert", false, where);
    spec.pre_tokenizer.push_back(std::move(step));
  }

  PreTokenizerStep::Behavior behavior(const Json& json, const std::string& where) const {
    using Behavior = PreTokenizerStep::Behavior;
    constexpr std::pair<std::string_view, Behavior> kBehaviors[] = {
        {"Isolated", Behavior::kIsolated},
        {"Removed", Behavior::kRemoved},
        {"MergedWithPrevious", Behavior::kMergedWithPrevious},
        {"MergedWithNext", Behavior::kMergedWithNext},
        {"Contiguous", Behavior::kContiguous}};
    if (!json.contains("behavior")) return Behavior::kIsolated;
    const std::string name = text(json["behavior"], where + ".behavior");
    for (const auto& [known, behavior] : kBehaviors) {
      if (known == name) return behavior;
    }
    refuse(where, "the behavior " + name,
           "Isolated, Removed, MergedWithPrevious, MergedWithNext and Contiguous are");
  }

  void word_piece_decoder(const Json& json, DecoderSpec& decoder) const {
    object(json, "decoder", {"type", "prefix", "cleanup"});
    decoder.continuing_prefix = text(need(json, "prefix", "decoder"), "decoder.prefix");
    decoder.cleanup = flag(json, "cleanup", true, "decoder");
    // Every token begins with an empty prefix.
    decoder.spaces = !decoder.continuing_prefix.empty();
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
      metaspace_keys(json, where);
      const std::string space = replacement(json, where);
      decoder.replace.emplace_back(space, " ");
      if (prepend_scheme(json, where) != PreTokenizerStep::Prepend::kNever) {
        decoder.first_removes = space;
      }
    } else {
      refuse(
          where, "the type " + type,
          "ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, WordPiece alone and Sequence "
          "are");
    }
    return false;
  }
};

}  // namespace

void parse_pre_tokenizer(const Json& json, const std::string& origin, TokenizerSpec& spec) {
  StepsParser(origin).pre_tokenizers(json, spec);
}

void parse_decoder(const Json& json, const std::string& origin, TokenizerSpec& spec) {
  StepsParser(origin).decoder(json, spec);
}

}  // namespace atl::text
