#include <nlohmann/json.hpp>
#include <tuple>

#include "atoll/text/tokenizer_json/tokenizer_json_reader.h"

// What is done to a text before it is cut into words.

namespace atl::text {

namespace {

using Kind = NormalizerStep::Kind;

constexpr std::string_view kBase64 =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

class NormalizerParser : public JsonReader {
 public:
  using JsonReader::JsonReader;

  void parse(const Json& json, const std::string& where, TokenizerSpec& spec) const {
    if (json.is_null()) return;
    const std::string type = type_of(json);
    if (type == "Sequence") {
      object(json, where, {"type", "normalizers"});
      for (const Json& entry : array(need(json, "normalizers", where), where)) {
        parse(entry, where + ".Sequence", spec);
      }
    } else if (type == "BertNormalizer") {
      bert(json, where, spec);
    } else if (type == "Nmt") {
      object(json, where, {"type"});
      add(spec, Kind::kRemove, CharClass::kNmtRemoved);
      add(spec, Kind::kSpace, CharClass::kNmtSpace);
    } else if (type == "StripAccents") {
      object(json, where, {"type"});
      add(spec, Kind::kRemove, CharClass::kAccent);
    } else {
      spec.normalizers.push_back(step(json, type, where));
    }
  }

 private:
  static void add(TokenizerSpec& spec, Kind kind, CharClass char_class) {
    spec.normalizers.push_back({.kind = kind, .char_class = char_class});
  }

  void bert(const Json& json, const std::string& where, TokenizerSpec& spec) const {
    object(json, where,
           {"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
    const bool lowers = flag(json, "lowercase", true, where);
    if (flag(json, "clean_text", true, where)) {
      add(spec, Kind::kRemove, CharClass::kControl);
      add(spec, Kind::kSpace, CharClass::kBertSpace);
    }
    if (flag(json, "handle_chinese_chars", true, where)) {
      add(spec, Kind::kSurround, CharClass::kChinese);
    }
    if (flag(json, "strip_accents", lowers, where)) {
      spec.normalizers.push_back({.kind = Kind::kForm, .form = NormalForm::kNfd});
      add(spec, Kind::kRemove, CharClass::kBertAccent);
    }
    if (lowers) spec.normalizers.push_back({.kind = Kind::kLowercase});
  }

  NormalizerStep step(const Json& json, const std::string& type, const std::string& where) const {
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
    } else if (type == "ByteLevel") {
      object(json, where, {"type"});
      step.kind = Kind::kByteLevel;
    } else if (type == "Precompiled") {
      object(json, where, {"type", "precompiled_charsmap"});
      step.kind = Kind::kCharsMap;
      step.content = from_base64(need(json, "precompiled_charsmap", where), where);
    } else {
      step.form = normal_form(json, type, where);
    }
    return step;
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
           "NFC, NFD, NFKC, NFKD, Prepend, Replace, Lowercase, Strip, StripAccents, Nmt, "
           "BertNormalizer, ByteLevel, Precompiled and Sequence are");
  }

  std::string from_base64(const Json& json, const std::string& where) const {
    const std::string place = where + ".precompiled_charsmap";
    const std::string encoded = text(json, place);
    const std::size_t size = std::string_view(encoded).find_last_not_of('=') + 1;
    if (encoded.size() % 4 != 0 || encoded.size() - size > 2) damaged(place, "is not base64");
    std::string bytes;
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < size; ++i) {
      const std::size_t digit = kBase64.find(encoded[i]);
      if (digit == kBase64.npos) damaged(place, "is not base64");
      bits = bits << 6 | static_cast<std::uint32_t>(digit);
      // Of each four digits, of six bits each, all but the first complete a byte.
      const int spare = 6 - 2 * static_cast<int>(i % 4);
      if (i % 4 != 0) bytes.push_back(static_cast<char>(bits >> spare & 0xFF));
    }
    return bytes;
  }
};

}  // namespace

void parse_normalizer(const Json& json, const std::string& origin, TokenizerSpec& spec) {
  NormalizerParser(origin).parse(json, "normalizer", spec);
}

}  // namespace atl::text
