#include <limits>
#include <nlohmann/json.hpp>

#include "atoll/text/tokenizer_json/tokenizer_json_reader.h"

// The "model" of a tokenizer.json, all but vocabulary and merges.

namespace atl::text {

namespace {

class ModelParser : public JsonReader {
 public:
  using JsonReader::JsonReader;

  void parse(const Json& json, TokenizerSpec& spec) const {
    // Old files of BPE have no type.
    const std::string type =
        json.is_object() && !json.contains("type") ? std::string("BPE") : type_of(json);
    if (type == "BPE") {
      byte_pairs(json, spec.model);
    } else if (type == "WordLevel") {
      spec.model_kind = ModelKind::kWordLevel;
      object(json, "model", {"type", "vocab", "unk_token"});
    } else if (type == "WordPiece") {
      spec.model_kind = ModelKind::kWordPiece;
      word_piece(json, spec.words);
    } else if (type == "Unigram") {
      spec.model_kind = ModelKind::kUnigram;
      unigram(json, spec);
      return;
    } else {
      refuse("model", "the type " + type, "BPE, WordLevel, WordPiece and Unigram are");
    }
    if (spec.model_kind != ModelKind::kBpe) {
      spec.model.unk_token = text(need(json, "unk_token", "model"), "model.unk_token");
    }
    if (!need(json, "vocab", "model").is_object()) {
      damaged("model.vocab", "must be an object of tokens and ids");
    }
  }

 private:
  void byte_pairs(const Json& json, BpeSpec& spec) const {
    object(json, "model",
           {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
            "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
    spec.continuing_prefix = text_or_empty(json, "continuing_subword_prefix");
    spec.end_suffix = text_or_empty(json, "end_of_word_suffix");
    spec.ignore_merges = flag(json, "ignore_merges", false, "model");
    // What happens to unknown characters; a byte-level model has none.
    spec.byte_fallback = flag(json, "byte_fallback", false, "model");
    spec.fuse_unk = flag(json, "fuse_unk", false, "model");
    if (spec.byte_fallback && !(spec.continuing_prefix.empty() && spec.end_suffix.empty())) {
      refuse("model", "byte_fallback with continuing_subword_prefix or end_of_word_suffix",
             "set the one that the model was not trained with to null");
    }
    if (json.contains("unk_token") && !json["unk_token"].is_null()) {
      spec.unk_token = text(json["unk_token"], "model.unk_token");
    }
    array(need(json, "merges", "model"), "model.merges");
  }

  void word_piece(const Json& json, WordModelSpec& spec) const {
    object(json, "model",
           {"type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
    spec.continuing_prefix =
        text(need(json, "continuing_subword_prefix", "model"), "model.continuing_subword_prefix");
    const Json& most = need(json, "max_input_chars_per_word", "model");
    if (!most.is_number_unsigned()) {
      damaged("model.max_input_chars_per_word", most.dump() + " is not a number of characters");
    }
    // A word is looked through as often as it has characters.
    constexpr std::uint64_t kMost = 1000;
    spec.max_chars = most.get<std::uint64_t>();
    if (spec.max_chars > kMost) {
      refuse("model", "max_input_chars_per_word " + most.dump(), "at most 1000 is");
    }
  }

  void unigram(const Json& json, TokenizerSpec& spec) const {
    object(json, "model", {"type", "unk_id", "vocab", "byte_fallback"});
    if (json.contains("unk_id") && !json["unk_id"].is_null()) {
      spec.words.unk_id = id(json["unk_id"], "model.unk_id");
    }
    spec.model.byte_fallback = flag(json, "byte_fallback", false, "model");
    array(need(json, "vocab", "model"), "model.vocab");
    if (spec.words.scores.size() != spec.model.vocab.size()) {
      damaged("model.vocab", "must be an array of [token, score]");
    }
  }

  std::string text_or_empty(const Json& json, const char* key) const {
    if (!json.contains(key) || json[key].is_null()) return "";
    return text(json[key], std::string("model.") + key);
  }
};

}  // namespace

void parse_model(const Json& json, const std::string& origin, TokenizerSpec& spec) {
  ModelParser(origin).parse(json, spec);
}

}  // namespace atl::text
