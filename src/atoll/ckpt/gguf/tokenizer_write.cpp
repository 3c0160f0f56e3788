#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "atoll/base/json.h"
#include "atoll/ckpt/gguf/pre_tokenizers.h"
#include "atoll/ckpt/gguf/tokenizer.h"
#include "atoll/text/tokenizer.h"

namespace atl::ckpt {

namespace {

// Sorted keys, so that looking one up among a vocabulary is fast.
using Json = nlohmann::json;

// Of tokenizer.ggml.token_type.
constexpr std::int32_t kNormal = 1;
constexpr std::int32_t kUnknown = 2;
constexpr std::int32_t kControl = 3;
constexpr std::int32_t kUserDefined = 4;
constexpr std::int32_t kUnused = 5;
constexpr std::int32_t kByte = 6;

Json parse(const HfDirectory& directory, const char* name) {
  if (!directory.has_file(name)) return Json::object();
  const std::string path = (directory.path() / name).string();
  Json json = parse_json(directory.read_text(name), path);
  if (!json.is_object()) throw damaged_error("{} is not a JSON object", path);
  return json;
}

// "<0x0A>": the piece that stands for one byte.
bool is_byte_piece(const std::string& token) {
  return token.size() == 6 && token.starts_with("<0x") && token.ends_with(">") &&
         token.find_first_not_of("0123456789ABCDEF", 3) == 5;
}

class Writer {
 public:
  Writer(const HfDirectory& directory, const Json& tokenizer, std::string origin,
         std::int64_t vocab_size)
      : directory_(directory),
        origin_(std::move(origin)),
        vocab_size_(vocab_size),
        tokenizer_(tokenizer),
        config_(parse(directory, "tokenizer_config.json")) {}

  GgufFields fields() {
    try {
      model_ = tokenizer_.at("model");
      if (model_.value("type", "BPE") != "BPE") refuse("model", "is not BPE");
      for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
        if (!text_or_empty(model_, key).empty()) refuse("model", fmt::format("has a {}", key));
      }
      read_tokens();
      is_byte_level_ = !model_.value("byte_fallback", false);
      if (is_byte_level_) {
        byte_level();
      } else {
        sentence_piece();
      }
      add("tokens", std::move(tokens_));
      add("token_type", types_);
      special_tokens();
      chat_template();
    } catch (const Json::exception& error) {
      throw damaged_error("{}: {}", origin_, json_reason(error));
    }
    return std::move(fields_);
  }

 private:
  void add(const std::string& name, GgufField value) {
    fields_.emplace_back("tokenizer.ggml." + name, std::move(value));
  }
  [[noreturn]] void refuse(std::string_view field, std::string_view what) const {
    throw user_error("{}: \"{}\" {}, which llama.cpp has no counterpart for; export as hf", origin_,
                     field, what);
  }

  void place(const std::string& text, std::int64_t id, std::int32_t type) {
    if (id < 0 || id >= vocab_size_) {
      throw user_error("{}: token \"{}\" has id {}, and the model has {} rows for tokens", origin_,
                       text, id, vocab_size_);
    }
    const auto at = static_cast<std::size_t>(id);
    const bool is_taken = types_[at] != kUnused;
    if (is_taken && tokens_[at] != text) {
      throw damaged_error("{}: \"{}\" and \"{}\" have the same id {}", origin_, tokens_[at], text,
                          id);
    }
    tokens_[at] = text;
    types_[at] = type;
    ids_[text] = id;
  }

  void read_tokens() {
    for (std::int64_t i = 0; i < vocab_size_; ++i) tokens_.push_back(fmt::format("[PAD{}]", i));
    types_.assign(tokens_.size(), kUnused);
    const bool has_bytes = model_.value("byte_fallback", false);
    const std::string unknown = text_or_empty(model_, "unk_token");
    for (const auto& [text, id] : model_.at("vocab").items()) {
      const bool is_byte = has_bytes && is_byte_piece(text);
      place(text, id.get<std::int64_t>(), is_byte ? kByte : kNormal);
    }
    auto next_id = static_cast<std::int64_t>(model_.at("vocab").size());
    for (const Json& added : tokenizer_.value("added_tokens", Json::array())) {
      check_added(added);
      const auto text = added.at("content").get<std::string>();
      if (text.empty()) continue;
      // As settle_token_ids() of text/token_ids.h has it, whatever the file says.
      const auto known = ids_.find(text);
      const std::int64_t id = known != ids_.end() ? known->second : next_id++;
      const bool is_unknown = has_bytes && text == unknown;
      const std::int32_t special = is_unknown ? kUnknown : kControl;
      place(text, id, added.value("special", false) ? special : kUserDefined);
    }
  }

  // llama.cpp finds a token where it is spelled, takes no white space along, and normalizes nothing
  // before it looks.
  void check_added(const Json& added) const {
    for (const char* flag : {"lstrip", "rstrip", "single_word"}) {
      if (added.value(flag, false)) {
        refuse("added_tokens", fmt::format("has {} with \"{}\"", added.at("content").dump(), flag));
      }
    }
    if (added.value("normalized", false) && !part("normalizer").is_null()) {
      refuse("added_tokens", fmt::format("has {} with \"normalized\", beside a normalizer",
                                         added.at("content").dump()));
    }
  }

  static std::string text_or_empty(const Json& json, const char* key) {
    const auto found = json.find(key);
    return found == json.end() || !found->is_string() ? "" : found->get<std::string>();
  }

  // The two halves of each merge, best first.
  std::vector<std::pair<std::string, std::string>> merges() const {
    std::vector<std::pair<std::string, std::string>> halves;
    for (const Json& merge : model_.at("merges")) {
      if (merge.is_array()) {
        halves.emplace_back(merge.at(0).get<std::string>(), merge.at(1).get<std::string>());
        continue;
      }
      const auto text = merge.get<std::string>();
      const std::size_t space = text.find(' ');
      if (space == std::string::npos) {
        throw damaged_error("{}: merge \"{}\" is not two tokens", origin_, text);
      }
      halves.emplace_back(text.substr(0, space), text.substr(space + 1));
    }
    return halves;
  }

  const Json& part(const char* name) const {
    static const Json kNull;
    const auto found = tokenizer_.find(name);
    return found == tokenizer_.end() ? kNull : *found;
  }

  void byte_level() {
    const Json& normalizer = part("normalizer");
    const bool is_nfc = normalizer.is_object() && normalizer.value("type", "") == "NFC";
    if (!normalizer.is_null() && !is_nfc) refuse("normalizer", "is neither null nor NFC");
    const Json& pre = part("pre_tokenizer");
    const auto name =
        name_gguf_pre_tokenizer(pre.dump(), is_nfc, model_.value("ignore_merges", false));
    if (!name) {
      throw user_error(
          "{}: \"pre_tokenizer\" with this \"normalizer\" and \"ignore_merges\" is none that atoll "
          "can name to llama.cpp (it knows {}); export as hf",
          origin_, gguf_pre_tokenizer_names());
    }
    add("model", std::string("gpt2"));
    add("pre", *name);
    std::vector<std::string> list;
    for (const auto& [left, right] : merges()) list.push_back(left + " " + right);
    add("merges", std::move(list));
  }

  // SentencePiece merges what makes the piece of the best score. A list of merges says the same
  // when those that make one piece stand together and none is missing.
  void sentence_piece() {
    const bool has_prefix = check_spaces();
    std::vector<float> scores(tokens_.size(), 0);
    std::unordered_map<std::string, std::size_t> made;
    std::string last;
    float score = 0;
    for (const auto& [left, right] : merges()) {
      const std::string piece = left + right;
      if (piece != last) {
        if (!ids_.contains(piece) || made.contains(piece)) {
          refuse("merges", fmt::format("make \"{}\" in another order than by score", piece));
        }
        scores[static_cast<std::size_t>(ids_.at(piece))] = score;
        score -= 1;
        last = piece;
      }
      ++made[piece];
    }
    check_no_other_merge(made);
    // Pieces that nothing makes are single characters, and come after all others.
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (types_[i] == kNormal && !made.contains(tokens_[i])) scores[i] = score;
    }
    add("model", std::string("llama"));
    add("pre", std::string("default"));
    add("scores", std::move(scores));
    add("add_space_prefix", has_prefix);
  }

  void check_no_other_merge(const std::unordered_map<std::string, std::size_t>& made) const {
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      const std::string& piece = tokens_[i];
      if (types_[i] != kNormal) continue;
      std::size_t ways = 0;
      for (std::size_t cut = 1; cut < piece.size(); ++cut) {
        ways += is_normal(piece.substr(0, cut)) && is_normal(piece.substr(cut)) ? 1 : 0;
      }
      const auto found = made.find(piece);
      if (ways > (found == made.end() ? 0 : found->second)) {
        refuse("merges", fmt::format("do not make \"{}\" in every way they could", piece));
      }
    }
  }

  bool is_normal(const std::string& text) const {
    const auto found = ids_.find(text);
    return found != ids_.end() && types_[static_cast<std::size_t>(found->second)] == kNormal;
  }

  // Spaces as U+2581, and perhaps one before the text: SentencePiece's escaping. Says whether.
  bool check_spaces() const {
    constexpr const char* kSpace = "\xe2\x96\x81";
    const Json replace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpace}};
    const Json prepend = {{"type", "Prepend"}, {"prepend", kSpace}};
    const Json& normalizer = part("normalizer");
    const Json& pre = part("pre_tokenizer");
    if (pre.is_null() && normalizer.is_object()) {
      if (normalizer == replace) return false;
      const Json list = normalizer.value("normalizers", Json::array());
      if (list == Json::array({replace})) return false;
      if (list == Json::array({prepend, replace})) return true;
    }
    if (normalizer.is_null() && pre.is_object() && pre.value("type", "") == "Metaspace" &&
        pre.value("replacement", "") == kSpace && !pre.value("split", true)) {
      const auto scheme = pre.value("prepend_scheme", "always");
      if (scheme == "never") return false;
      // llama.cpp puts a space before what follows a special token too, and before a text that
      // begins with one.
      refuse("pre_tokenizer", fmt::format("is a Metaspace whose prepend_scheme is \"{}\"", scheme));
    }
    refuse("normalizer", "with \"pre_tokenizer\" is not SentencePiece's handling of spaces");
  }

  // A special token's id: as tokenizer_config.json names it, else as config.json numbers it.
  std::int64_t special(const char* in_tokenizer, const char* in_config) const {
    const auto found = config_.find(in_tokenizer);
    std::string text;
    if (found != config_.end() && found->is_object()) text = text_or_empty(*found, "content");
    if (found != config_.end() && found->is_string()) text = found->get<std::string>();
    if (!text.empty()) {
      const auto id = ids_.find(text);
      if (id != ids_.end()) return id->second;
      throw user_error("{}: \"{}\" is \"{}\", which tokenizer.json does not have",
                       (directory_.path() / "tokenizer_config.json").string(), in_tokenizer, text);
    }
    Json id = parse(directory_, "config.json").value(in_config, Json());
    if (id.is_array() && !id.empty()) id = Json(id[0]);
    if (!id.is_number_integer()) return -1;
    const auto value = id.get<std::int64_t>();
    return value >= 0 && value < vocab_size_ ? value : -1;
  }

  void special_tokens() {
    const std::int64_t bos = special("bos_token", "bos_token_id");
    const std::int64_t eos = special("eos_token", "eos_token_id");
    const std::int64_t unknown = special("unk_token", "unk_token_id");
    const std::int64_t padding = special("pad_token", "pad_token_id");
    for (const auto& [name, id] :
         {std::pair("bos_token_id", bos), std::pair("eos_token_id", eos),
          std::pair("unknown_token_id", unknown), std::pair("padding_token_id", padding)}) {
      if (id >= 0) add(name, static_cast<std::uint32_t>(id));
    }
    bool adds_bos = false;
    bool adds_eos = false;
    template_tokens(part("post_processor"), bos, eos, adds_bos, adds_eos);
    add("add_bos_token", adds_bos);
    add("add_eos_token", adds_eos);
  }

  // What the post-processor puts around a text; llama.cpp knows bos before and eos after it.
  void template_tokens(const Json& processor, std::int64_t bos, std::int64_t eos, bool& adds_bos,
                       bool& adds_eos) const {
    if (processor.is_null()) return;
    const auto type = processor.value("type", "");
    if (type == "ByteLevel") return;
    if (type == "Sequence") {
      for (const Json& step : processor.at("processors")) {
        template_tokens(step, bos, eos, adds_bos, adds_eos);
      }
      return;
    }
    if (type != "TemplateProcessing") refuse("post_processor", "is a " + type);
    bool is_behind = false;
    for (const Json& piece : processor.at("single")) {
      if (piece.contains("Sequence")) {
        is_behind = true;
        continue;
      }
      const auto found = ids_.find(piece.at("SpecialToken").at("id").get<std::string>());
      const std::int64_t id = found == ids_.end() ? -1 : found->second;
      bool& adds = is_behind ? adds_eos : adds_bos;
      if (id < 0 || id != (is_behind ? eos : bos) || adds) {
        refuse("post_processor", "puts other tokens than bos_token before or eos_token after");
      }
      adds = true;
    }
  }

  void chat_template() {
    if (directory_.has_file("chat_template.jinja")) {
      fields_.emplace_back("tokenizer.chat_template", directory_.read_text("chat_template.jinja"));
      return;
    }
    const auto found = config_.find("chat_template");
    if (found == config_.end() || found->is_null()) return;
    if (found->is_string()) {
      fields_.emplace_back("tokenizer.chat_template", found->get<std::string>());
      return;
    }
    for (const Json& entry : *found) {
      const auto name = entry.at("name").get<std::string>();
      fields_.emplace_back("tokenizer.chat_template" + (name == "default" ? "" : "." + name),
                           entry.at("template").get<std::string>());
    }
  }

  const HfDirectory& directory_;
  std::string origin_;
  std::int64_t vocab_size_;
  Json tokenizer_;
  Json config_;
  Json model_;
  bool is_byte_level_ = true;
  std::vector<std::string> tokens_;
  std::vector<std::int32_t> types_;
  std::unordered_map<std::string, std::int64_t> ids_;
  GgufFields fields_;
};

}  // namespace

GgufFields tokenizer_to_gguf(const HfDirectory& directory, std::int64_t vocab_size) {
  if (directory.has_file("tokenizer.json")) {
    return Writer(directory, parse(directory, "tokenizer.json"),
                  (directory.path() / "tokenizer.json").string(), vocab_size)
        .fields();
  }
  if (directory.has_file("tokenizer.model")) {
    const std::filesystem::path path = directory.path() / "tokenizer.model";
    return Writer(directory, Json::parse(Tokenizer::load(path).to_json()), path.string(),
                  vocab_size)
        .fields();
  }
  return {{"tokenizer.ggml.model", std::string("none")}};
}

}  // namespace atl::ckpt
