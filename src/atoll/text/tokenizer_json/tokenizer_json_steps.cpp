#include <algorithm>
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
    std::vector<const Json*> steps;
    if (!json.is_null()) add_decoders(json, steps);
    const bool ends_in_bytes = !steps.empty() && type_of(*steps.back()) == "ByteLevel";
    if (spec.model.byte_level && !(ends_in_bytes && steps.size() == 1)) {
      refuse("decoder", "the type " + type_of(json),
             "with a pre_tokenizer ByteLevel, ByteLevel is");
    }
    if (json.is_null()) spec.decoder.spaces = true;
    Stage stage = Stage::kTokens;
    for (const Json* step : steps) stage = decoder_step(*step, stage, spec.decoder);
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
    } else if (type == "UnicodeScripts") {
      object(json, where, {"type"});
      spec.pre_tokenizer.push_back({.kind = PreTokenizerStep::Kind::kScripts});
    } else if (type == "FixedLength") {
      object(json, where, {"type", "length"});
      spec.pre_tokenizer.push_back({.pattern = fixed_length(json, where)});
    } else {
      refuse(where, "the type " + type,
             "ByteLevel, Split, Digits, Metaspace, Whitespace, WhitespaceSplit, Punctuation, "
             "CharDelimiterSplit, BertPreTokenizer, UnicodeScripts, FixedLength and Sequence are");
    }
  }

  // So many characters, as a regular expression.
  std::string fixed_length(const Json& json, const std::string& where) const {
    constexpr std::int32_t kMost = 65535;  // of PCRE2
    const std::int32_t length =
        json.contains("length") ? id(json["length"], where + ".length") : 5;  // as the library's
    if (length < 1 || length > kMost) {
      refuse(where, fmt::format("a FixedLength of {}", length), "1 to 65535 is");
    }
    return fmt::format("[\\s\\S]{{1,{}}}", length);
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

  // What the steps of a decoder so far have made of the tokens.
  enum class Stage {
    kTokens,  // each is still one
    kFused,   // one text
    kPlaced,  // each knows what it is beside its neighbours
  };

  void add_decoders(const Json& json, std::vector<const Json*>& steps) const {
    if (type_of(json) != "Sequence") return steps.push_back(&json);
    object(json, "decoder", {"type", "decoders"});
    for (const Json& step : array(need(json, "decoders", "decoder"), "decoder")) {
      add_decoders(step, steps);
    }
  }

  void word_piece_decoder(const Json& json, DecoderSpec& decoder) const {
    object(json, "decoder", {"type", "prefix", "cleanup"});
    decoder.continuing_prefix = text(need(json, "prefix", "decoder"), "decoder.prefix");
    decoder.cleanup = flag(json, "cleanup", true, "decoder");
    // Every token begins with an empty prefix.
    decoder.spaces = !decoder.continuing_prefix.empty();
  }

  void bpe_decoder(const Json& json, DecoderSpec& decoder) const {
    object(json, "decoder", {"type", "suffix"});
    decoder.word_end = text(need(json, "suffix", "decoder"), "decoder.suffix");
    if (decoder.word_end.empty())
      refuse("decoder", "BPEDecoder without a suffix", "one with it is");
  }

  void ctc_decoder(const Json& json, DecoderSpec& decoder) const {
    object(json, "decoder", {"type", "pad_token", "word_delimiter_token", "cleanup"});
    decoder.joins_repeats = true;
    decoder.pad = text(need(json, "pad_token", "decoder"), "decoder.pad_token");
    decoder.word_delimiter =
        text(need(json, "word_delimiter_token", "decoder"), "decoder.word_delimiter_token");
    decoder.cleanup = flag(json, "cleanup", true, "decoder");
    if (decoder.pad.empty() || decoder.word_delimiter.empty()) {
      refuse("decoder", "CTC with an empty token", "one with pad and delimiter is");
    }
  }

  void strip_text(const DecoderStep& step, DecoderSpec& decoder) const {
    if (step.stop != 0 || decoder.strip_count != 0) {
      refuse("decoder", "a Strip of a whole text's end", "of its start, once, is");
    }
    if (step.content.size() != 1 || static_cast<unsigned char>(step.content[0]) >= 0x80) {
      refuse("decoder", fmt::format("Strip of \"{}\" from a whole text", step.content),
             "of an ASCII character is");
    }
    decoder.strip = step.content;
    decoder.strip_count = step.start;
  }

  Stage strip(const Json& json, Stage stage, DecoderSpec& decoder) const {
    object(json, "decoder", {"type", "content", "start", "stop"});
    const auto count = [&](const char* key) {
      return json.contains(key) ? id(json[key], std::string("decoder.") + key) : 0;
    };
    const DecoderStep step = {.kind = DecoderStep::Kind::kStrip,
                              .content = text(need(json, "content", "decoder"), "decoder.content"),
                              .start = count("start"),
                              .stop = count("stop")};
    if (step.content.empty()) damaged("decoder.content", "is not a character");
    if (stage == Stage::kFused) {
      strip_text(step, decoder);
    } else if (decoder.byte_fallback) {
      refuse("decoder", "Strip between ByteFallback and Fuse", "before or behind both is");
    } else {
      decoder.steps.push_back(step);
    }
    return stage;
  }

  void token_step(const Json& json, const std::string& type, DecoderSpec& decoder) const {
    const std::string where = "decoder";
    DecoderStep step;
    if (type == "Replace") {
      object(json, where, {"type", "pattern", "content"});
      std::tie(step.pattern, step.literal) = pattern(json, where);
      step.content = text(need(json, "content", where), where);
      if (step.pattern.empty()) refuse(where, "Replace of an empty text", "of one that is not is");
    } else {
      metaspace_keys(json, where);
      step.kind = DecoderStep::Kind::kMetaspace;
      step.pattern = replacement(json, where);
      step.first_removes = prepend_scheme(json, where) != PreTokenizerStep::Prepend::kNever;
    }
    decoder.steps.push_back(std::move(step));
  }

  // Returns what the tokens are after this step.
  Stage decoder_step(const Json& json, Stage stage, DecoderSpec& decoder) const {
    const std::string where = "decoder";
    const std::string type = type_of(json);
    if (type == "Strip" && stage != Stage::kPlaced) return strip(json, stage, decoder);
    if (type == "Fuse") {
      object(json, where, {"type"});
      return stage == Stage::kPlaced ? stage : Stage::kFused;
    }
    constexpr std::string_view kKnown[] = {"ByteLevel", "Replace",    "ByteFallback", "Metaspace",
                                           "WordPiece", "BPEDecoder", "CTC",          "Strip"};
    if (std::find(std::begin(kKnown), std::end(kKnown), type) == std::end(kKnown)) {
      refuse(where, "the type " + type,
             "ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, WordPiece, BPEDecoder, CTC "
             "and Sequence are");
    }
    if (stage == Stage::kFused) refuse(where, type + " after Fuse or ByteLevel", "Strip is");
    if (stage == Stage::kPlaced) {
      refuse(where, type + " after WordPiece, BPEDecoder or CTC", "Fuse is");
    }
    if (type == "Replace" || type == "Metaspace") {
      token_step(json, type, decoder);
      return stage;
    }
    if (type == "ByteFallback") {
      object(json, where, {"type"});
      decoder.byte_fallback = true;
      return stage;
    }
    if (decoder.byte_fallback) refuse(where, type + " after ByteFallback", "Fuse and Strip are");
    if (type == "ByteLevel") {
      object(json, where, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
      for (const DecoderStep& step : decoder.steps) {
        if (step.first_removes) refuse(where, "ByteLevel after Metaspace", "after Replace is");
      }
      decoder.byte_level = true;
      return Stage::kFused;
    }
    if (type == "WordPiece") {
      word_piece_decoder(json, decoder);
    } else if (type == "BPEDecoder") {
      bpe_decoder(json, decoder);
    } else if (decoder.steps.empty()) {
      ctc_decoder(json, decoder);
    } else {
      refuse(where, "CTC after another step", "CTC alone is");
    }
    return Stage::kPlaced;
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
