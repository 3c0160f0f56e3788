#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/text/tokenizer_json/tokenizer_json_document.h"

namespace atl::text {

namespace {

class Parser : public JsonReader {
 public:
  using JsonReader::JsonReader;

  TokenizerSpec parse(std::string_view text) {
    TokenizerSpec spec;
    const Json root = read_tokenizer_document(text, origin(), spec);
    object(root, "the file",
           {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
            "post_processor", "decoder", "model"});
    if (root.contains("version") && root["version"] != "1.0") {
      refuse("version", root["version"].dump(), "only \"1.0\" is known");
    }
    parse_model(need(root, "model", "the file"), origin(), spec);
    if (root.contains("added_tokens")) added_tokens(root["added_tokens"], spec.added_tokens);
    if (root.contains("normalizer")) parse_normalizer(root["normalizer"], origin(), spec);
    parse_pre_tokenizer(root.value("pre_tokenizer", Json()), origin(), spec);
    if (root.contains("post_processor")) {
      post_processor(root["post_processor"], "post_processor", spec);
    }
    parse_decoder(root.value("decoder", Json()), origin(), spec);
    return spec;
  }

 private:
  void added_tokens(const Json& json, std::vector<AddedToken>& tokens) const {
    for (const Json& entry : array(json, "added_tokens")) {
      const std::string where = fmt::format("added_tokens[{}]", tokens.size());
      object(entry, where,
             {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
      AddedToken token;
      token.id = id(need(entry, "id", where), where + ".id");
      token.content = text(need(entry, "content", where), where + ".content");
      token.lstrip = flag(entry, "lstrip", false, where);
      token.rstrip = flag(entry, "rstrip", false, where);
      token.single_word = flag(entry, "single_word", false, where);
      token.special = flag(entry, "special", false, where);
      token.normalized = flag(entry, "normalized", false, where);
      // Every position of a text is compared with it.
      constexpr std::size_t kLongest = 1024;
      if (token.content.size() > kLongest) {
        damaged(where, fmt::format("the content is {} bytes long; at most {} are allowed",
                                   token.content.size(), kLongest));
      }
      tokens.push_back(std::move(token));
    }
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
    } else if (type == "TemplateProcessing" || type == "BertProcessing" ||
               type == "RobertaProcessing") {
      if (!spec.prefix_ids.empty() || !spec.suffix_ids.empty()) {
        refuse(where, "a second one that adds tokens, " + type, "one is");
      }
      if (type == "TemplateProcessing") {
        template_processing(json, where, spec);
      } else {
        bert_processing(json, where, spec);
      }
    } else {
      refuse(where, "the type " + type,
             "ByteLevel, TemplateProcessing, BertProcessing, RobertaProcessing and Sequence are");
    }
  }

  // `cls` before a text, `sep` after it. What RobertaProcessing has more moves offsets only.
  void bert_processing(const Json& json, const std::string& where, TokenizerSpec& spec) const {
    object(json, where, {"type", "sep", "cls", "trim_offsets", "add_prefix_space"});
    const auto id_of = [&](const char* key) {
      const std::string place = where + "." + key;
      const Json& pair = array(need(json, key, where), place);
      if (pair.size() != 2) damaged(place, "must be a token and its id");
      return id(pair[1], place);
    };
    spec.prefix_ids = {id_of("cls")};
    spec.suffix_ids = {id_of("sep")};
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
};

}  // namespace

TokenizerSpec parse_tokenizer_json(std::string_view json, std::string_view origin) {
  return Parser(origin).parse(json);
}

}  // namespace atl::text
