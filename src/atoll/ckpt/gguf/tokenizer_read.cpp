#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "atoll/base/log.h"
#include "atoll/ckpt/gguf/pre_tokenizers.h"
#include "atoll/ckpt/gguf/tokenizer.h"

namespace atl::ckpt {

namespace {

using Json = nlohmann::ordered_json;

// Of tokenizer.ggml.token_type.
enum class TokenType : std::uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

bool is_utf8(std::string_view text) {
  try {
    Json(text).dump();
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

class Reader {
 public:
  explicit Reader(const GgufFile& file) : file_(file), origin_(file.path().string()) {
    kind_ = file.text(key("model"));
    if (kind_ != "gpt2" && kind_ != "llama") {
      throw user_error("{}: tokenizer.ggml.model is \"{}\", and atoll reads gpt2 and llama",
                       origin_, kind_);
    }
    read_tokens();
    bos_ = special("bos");
    eos_ = special("eos");
    unknown_ = special("unknown");
    padding_ = special("padding");
    if (kind_ == "llama" && unknown_ < 0) unknown_ = 0;
    const auto pre = kind_ == "gpt2" ? find_pre() : GgufPreTokenizer{.add_bos = true};
    add_bos_ = file.boolean(key("add_bos_token"), pre.add_bos) && bos_ >= 0;
    add_eos_ = file.boolean(key("add_eos_token"), false) && eos_ >= 0;
    tokenizer_ = kind_ == "gpt2" ? byte_level(pre) : sentence_piece();
  }

  std::string tokenizer_json() const { return tokenizer_.dump() + "\n"; }

  std::string tokenizer_config() const {
    Json json = {{"add_bos_token", add_bos_},
                 {"add_eos_token", add_eos_},
                 {"clean_up_tokenization_spaces", false},
                 {"tokenizer_class", "PreTrainedTokenizerFast"}};
    for (const auto& [field, id] :
         {std::pair("bos_token", bos_), std::pair("eos_token", eos_),
          std::pair("unk_token", unknown_), std::pair("pad_token", padding_)}) {
      if (id >= 0) json[field] = token(id);
    }
    const std::int64_t positions =
        file_.integer(file_.text("general.architecture") + ".context_length", 0);
    if (positions > 0) json["model_max_length"] = positions;
    add_chat_template(json);
    return json.dump(2) + "\n";
  }

  std::string generation_config() const {
    Json json = {{"_from_model_config", true}};
    if (bos_ >= 0) json["bos_token_id"] = bos_;
    if (eos_ >= 0) json["eos_token_id"] = eos_;
    // Where a turn ends on another token than a text does, both end a generation.
    const std::int64_t end_of_turn = special("eot");
    if (eos_ >= 0 && end_of_turn >= 0 && end_of_turn != eos_) {
      json["eos_token_id"] = {eos_, end_of_turn};
    }
    if (padding_ >= 0) json["pad_token_id"] = padding_;
    return json.dump(2) + "\n";
  }

 private:
  static std::string key(const std::string& name) { return "tokenizer.ggml." + name; }
  std::string token(std::int64_t id) const {
    return std::string(tokens_[static_cast<std::size_t>(id)]);
  }
  TokenType type(std::size_t id) const { return types_[id]; }

  void read_tokens() {
    tokens_ = file_.texts(key("tokens"));
    if (tokens_.empty()) throw damaged_error("{}: tokenizer.ggml.tokens is empty", origin_);
    types_.assign(tokens_.size(), TokenType::kNormal);
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      // All cuts of a token are looked at, which no other length bounds.
      constexpr std::size_t kMaxTokenBytes = 4096;
      if (tokens_[i].size() > kMaxTokenBytes || !is_utf8(tokens_[i])) {
        throw damaged_error("{}: tokenizer.ggml.tokens[{}] is not UTF-8 of up to {} bytes", origin_,
                            i, kMaxTokenBytes);
      }
    }
    if (!file_.has(key("token_type"))) return;
    const std::vector<std::int64_t> types = file_.integers(key("token_type"));
    if (types.size() != tokens_.size()) {
      throw damaged_error("{}: {} tokens and {} tokenizer.ggml.token_type", origin_, tokens_.size(),
                          types.size());
    }
    for (std::size_t i = 0; i < types.size(); ++i) {
      if (types[i] < 1 || types[i] > 6) {
        throw damaged_error("{}: tokenizer.ggml.token_type[{}] is {}, not 1 to 6", origin_, i,
                            types[i]);
      }
      types_[i] = static_cast<TokenType>(types[i]);
    }
  }

  // The id of a special token; -1 when the file names none, or one that there is not, which
  // llama.cpp passes over, too.
  std::int64_t special(const std::string& role) const {
    const std::string name = key(role + "_token_id");
    const std::int64_t id = file_.integer(name, -1);
    // Some writers say "none" with the largest number.
    if (id == -1 || id == UINT32_MAX) return -1;
    if (id >= 0 && id < static_cast<std::int64_t>(tokens_.size())) return id;
    log::warning("{}: {} is {}, and there are {} tokens; it is passed over", origin_, name, id,
                 tokens_.size());
    return -1;
  }

  GgufPreTokenizer find_pre() const {
    const std::string name = file_.text(key("pre"), "default");
    if (auto found = find_gguf_pre_tokenizer(name)) return *std::move(found);
    throw user_error("{}: tokenizer.ggml.pre is \"{}\", and atoll knows {}", origin_, name,
                     gguf_pre_tokenizer_names());
  }

  Json added_tokens() const {
    Json added = Json::array();
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      const bool is_special = type(i) == TokenType::kControl || type(i) == TokenType::kUnknown;
      if (!is_special && type(i) != TokenType::kUserDefined) continue;
      added.push_back({{"id", i},
                       {"content", tokens_[i]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", is_special}});
    }
    return added;
  }

  // The number of tokens that belong into the model's vocabulary: those up to the last that merges
  // make, and up to the last that nothing uses before one that is added. Hugging Face's library
  // numbers added tokens without gaps, whatever their ids in the file are.
  std::size_t vocabulary_size() const {
    const auto is_in_model = [&](std::size_t i) {
      return type(i) == TokenType::kNormal || type(i) == TokenType::kByte;
    };
    std::size_t end = tokens_.size();
    while (end > 0 && type(end - 1) == TokenType::kUnused) --end;
    while (end > 0 && !is_in_model(end - 1) && type(end - 1) != TokenType::kUnused) --end;
    return end;
  }

  // What stands for a token that no text may become: it is nobody's text.
  static std::string unused_name(std::size_t id) { return fmt::format("<|unused_{}|>", id); }

  Json vocabulary() const {
    const std::size_t end = vocabulary_size();
    // Written as a list and turned into an object at once: ordered_json looks for each new key
    // among all others.
    Json::object_t vocab;
    // Of tokens with one text the last is the one that a text becomes, as in llama.cpp.
    std::unordered_map<std::string_view, std::size_t> last;
    for (std::size_t i = 0; i < end; ++i) {
      if (type(i) == TokenType::kUnused) continue;
      const auto [other, is_new] = last.emplace(tokens_[i], i);
      if (is_new) continue;
      log::warning("{}: tokenizer.ggml.tokens[{}] and [{}] are both \"{}\"; the text is always {}",
                   origin_, other->second, i, tokens_[i], i);
      other->second = i;
    }
    for (std::size_t i = 0; i < end; ++i) {
      const bool has_text = type(i) != TokenType::kUnused && last.at(tokens_[i]) == i;
      static_cast<std::vector<std::pair<const std::string, Json>>&>(vocab).emplace_back(
          has_text ? std::string(tokens_[i]) : unused_name(i), i);
    }
    return vocab;
  }

  // The tokens before and after every text.
  Json post_processor() const {
    if (!add_bos_ && !add_eos_) return nullptr;
    Json single = Json::array();
    Json special_tokens = Json::object();
    const auto add = [&](std::int64_t id) {
      const std::string text = token(id);
      single.push_back({{"SpecialToken", {{"id", text}, {"type_id", 0}}}});
      special_tokens[text] = {{"id", text}, {"ids", {id}}, {"tokens", {text}}};
    };
    if (add_bos_) add(bos_);
    single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
    if (add_eos_) add(eos_);
    Json pair = single;
    for (Json piece : single) {
      if (piece.contains("Sequence")) piece["Sequence"]["id"] = "B";
      piece.front()["type_id"] = 1;
      pair.push_back(piece);
    }
    return {{"type", "TemplateProcessing"},
            {"single", single},
            {"pair", pair},
            {"special_tokens", special_tokens}};
  }

  Json byte_level(const GgufPreTokenizer& pre) const {
    const Json level = {{"type", "ByteLevel"},
                        {"add_prefix_space", true},
                        {"trim_offsets", true},
                        {"use_regex", true}};
    Json processor = post_processor();
    if (processor.is_null()) processor = level;
    Json merges = Json::array();
    for (const std::string_view merge : file_.texts(key("merges"))) {
      const std::size_t space = merge.find(' ');
      if (space == std::string_view::npos || merge.find(' ', space + 1) != std::string_view::npos ||
          !is_utf8(merge)) {
        throw damaged_error("{}: tokenizer.ggml.merges[{}] is not two tokens", origin_,
                            merges.size());
      }
      merges.push_back({merge.substr(0, space), merge.substr(space + 1)});
    }
    return {{"version", "1.0"},
            {"truncation", nullptr},
            {"padding", nullptr},
            {"added_tokens", added_tokens()},
            {"normalizer", pre.is_nfc ? Json{{"type", "NFC"}} : Json()},
            {"pre_tokenizer", Json::parse(pre.pre_tokenizer)},
            {"post_processor", processor},
            {"decoder", level},
            {"model",
             {{"type", "BPE"},
              {"dropout", nullptr},
              {"unk_token", nullptr},
              {"continuing_subword_prefix", nullptr},
              {"end_of_word_suffix", nullptr},
              {"fuse_unk", false},
              {"byte_fallback", false},
              {"ignore_merges", pre.ignore_merges},
              {"vocab", vocabulary()},
              {"merges", std::move(merges)}}}};
  }

  // All ways in which two pieces make a third, best score of the third first.
  Json merges_by_score() const {
    const std::vector<double> scores = file_.numbers(key("scores"));
    if (scores.size() != tokens_.size()) {
      throw damaged_error("{}: {} tokens and {} tokenizer.ggml.scores", origin_, tokens_.size(),
                          scores.size());
    }
    std::unordered_map<std::string_view, std::size_t> ids;
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (std::isnan(scores[i])) {
        throw damaged_error("{}: tokenizer.ggml.scores[{}] is not a number", origin_, i);
      }
      if (type(i) != TokenType::kNormal) continue;
      ids.emplace(tokens_[i], i);
      order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
    // SentencePiece's pieces have up to 16 characters, and so fewer cuts. Pieces that are long runs
    // of one character would have a merge for each of their bytes: memory of the file's size
    // squared.
    const std::size_t max_merges = 16 * tokens_.size() + 1024;
    Json merges = Json::array();
    for (const std::size_t whole : order) {
      std::vector<std::pair<std::size_t, std::size_t>> parts;
      for (std::size_t cut = 1; cut < tokens_[whole].size(); ++cut) {
        const auto left = ids.find(tokens_[whole].substr(0, cut));
        const auto right = ids.find(tokens_[whole].substr(cut));
        if (left != ids.end() && right != ids.end()) {
          parts.emplace_back(left->second, right->second);
        }
      }
      std::sort(parts.begin(), parts.end());
      for (const auto& [left, right] : parts) merges.push_back({tokens_[left], tokens_[right]});
      if (merges.size() > max_merges) {
        throw damaged_error(
            "{}: the {} pieces of tokenizer.ggml.tokens can be made of each other in more than {} "
            "ways, which those of no tokenizer can",
            origin_, tokens_.size(), max_merges);
      }
    }
    return merges;
  }

  // As transformers converts SentencePiece's BPE models.
  Json sentence_piece() const {
    constexpr const char* kSpace = "\xe2\x96\x81";
    const bool has_prefix = file_.boolean(key("add_space_prefix"), true);
    if (file_.boolean(key("remove_extra_whitespaces"), false)) {
      throw user_error(
          "{}: tokenizer.ggml.remove_extra_whitespaces is true, which atoll does not do", origin_);
    }
    Json normalizers = Json::array();
    Json decoders = Json::array();
    if (has_prefix) normalizers.push_back({{"type", "Prepend"}, {"prepend", kSpace}});
    normalizers.push_back(
        {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpace}});
    decoders.push_back({{"type", "Replace"}, {"pattern", {{"String", kSpace}}}, {"content", " "}});
    decoders.push_back({{"type", "ByteFallback"}});
    decoders.push_back({{"type", "Fuse"}});
    if (has_prefix) {
      decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    }
    const bool has_bytes =
        std::find(types_.begin(), types_.end(), TokenType::kByte) != types_.end();
    return {{"version", "1.0"},
            {"truncation", nullptr},
            {"padding", nullptr},
            {"added_tokens", added_tokens()},
            {"normalizer", {{"type", "Sequence"}, {"normalizers", normalizers}}},
            {"pre_tokenizer", nullptr},
            {"post_processor", post_processor()},
            {"decoder", {{"type", "Sequence"}, {"decoders", decoders}}},
            {"model",
             {{"type", "BPE"},
              {"dropout", nullptr},
              {"unk_token", token(unknown_)},
              {"continuing_subword_prefix", nullptr},
              {"end_of_word_suffix", nullptr},
              {"fuse_unk", true},
              {"byte_fallback", has_bytes},
              {"ignore_merges", false},
              {"vocab", vocabulary()},
              {"merges", merges_by_score()}}}};
  }

  void add_chat_template(Json& json) const {
    Json named = Json::array();
    const std::string main = "tokenizer.chat_template";
    for (const auto& [name, value] : file_.metadata()) {
      if (!name.starts_with(main) || name == main + "s") continue;
      const std::string text = file_.text(name);
      if (!is_utf8(text)) throw damaged_error("{}: \"{}\" is not UTF-8", origin_, name);
      named.push_back(
          {{"name", name == main ? "default" : name.substr(main.size() + 1)}, {"template", text}});
    }
    if (named.size() == 1 && named[0]["name"] == "default") {
      json["chat_template"] = named[0]["template"];
    } else if (!named.empty()) {
      json["chat_template"] = named;
    }
  }

  const GgufFile& file_;
  std::string origin_;
  std::string kind_;
  std::vector<std::string_view> tokens_;
  std::vector<TokenType> types_;
  std::int64_t bos_ = -1;
  std::int64_t eos_ = -1;
  std::int64_t unknown_ = -1;
  std::int64_t padding_ = -1;
  bool add_bos_ = false;
  bool add_eos_ = false;
  Json tokenizer_;
};

}  // namespace

std::map<std::string, std::string> tokenizer_from_gguf(const GgufFile& file) {
  const std::string kind = file.text("tokenizer.ggml.model", "none");
  if (kind == "none" || kind == "no_vocab") return {};
  const Reader reader(file);
  return {{"tokenizer.json", reader.tokenizer_json()},
          {"tokenizer_config.json", reader.tokenizer_config()},
          {"generation_config.json", reader.generation_config()}};
}

}  // namespace atl::ckpt
