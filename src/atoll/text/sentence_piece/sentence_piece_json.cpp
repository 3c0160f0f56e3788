#include "atoll/text/sentence_piece/sentence_piece_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/text/utf8.h"

namespace atl::text {

namespace {

using Json = nlohmann::ordered_json;
using Piece = SentencePieceSpec::Piece;
using Type = SentencePieceSpec::Type;

bool is_one_character(std::string_view text) {
  return utf8_step(text).size == text.size();
}

// The pairs of pieces that make a third, in the order in which SentencePiece merges: the best score
// of what is made first. Of pairs that make the same piece the longer left half comes first.
class Merges {
 public:
  explicit Merges(const SentencePieceSpec& spec) : spec_(spec) {
    for (std::size_t i = 0; i < spec.pieces.size(); ++i) {
      if (spec.pieces[i].type == Type::kNormal) normal_.emplace(spec.pieces[i].text, i);
    }
    for (const auto& [text, id] : normal_) {
      if (!halves(text).empty()) made_.push_back(id);
    }
    std::sort(made_.begin(), made_.end(), [&](std::size_t a, std::size_t b) {
      const float left = spec.pieces[a].score;
      const float right = spec.pieces[b].score;
      return left != right ? left > right : a < b;
    });
  }

  // A piece whose turn no order of merges gives, since another has its score; or none.
  const Piece* tied() const {
    for (std::size_t i = 1; i < made_.size(); ++i) {
      if (spec_.pieces[made_[i - 1]].score == spec_.pieces[made_[i]].score) {
        return &spec_.pieces[made_[i]];
      }
    }
    return nullptr;
  }

  Json to_json() const {
    Json list = Json::array();
    for (const std::size_t id : made_) {
      const std::string_view text = spec_.pieces[id].text;
      for (const std::size_t cut : halves(text)) {
        list.push_back({text.substr(0, cut), text.substr(cut)});
      }
    }
    return list;
  }

 private:
  std::vector<std::size_t> halves(std::string_view text) const {
    std::vector<std::size_t> cuts;
    for (std::size_t cut = text.size(); cut-- > 1;) {
      if (normal_.contains(text.substr(0, cut)) && normal_.contains(text.substr(cut))) {
        cuts.push_back(cut);
      }
    }
    return cuts;
  }

  const SentencePieceSpec& spec_;
  std::unordered_map<std::string_view, std::size_t> normal_;
  std::vector<std::size_t> made_;
};

std::string obstacle_of_piece(const Piece& piece) {
  // A piece is cut everywhere to find its merges, which for long ones would take long.
  constexpr std::size_t kMaxBytes = 128;
  if (piece.text.size() > kMaxBytes) {
    return fmt::format("the piece \"{}...\" is longer than {} bytes", piece.text.substr(0, 16),
                       kMaxBytes);
  }
  if (piece.type == Type::kUserDefined || piece.type == Type::kUnused) {
    return fmt::format("\"{}\" is a {} piece", piece.text,
                       piece.type == Type::kUnused ? "unused" : "user-defined");
  }
  if (piece.type != Type::kNormal && is_one_character(piece.text)) {
    return fmt::format("\"{}\" is one character and no normal piece", piece.text);
  }
  return "";
}

// SentencePiece's escaping of spaces as normalizers that act on every part between special tokens.
Json normalizer(const SentencePieceSpec& spec) {
  Json list = Json::array();
  if (spec.add_dummy_prefix) list.push_back({{"type", "Prepend"}, {"prepend", kSpaceSymbol}});
  list.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpaceSymbol}});
  return {{"type", "Sequence"}, {"normalizers", list}};
}

Json decoder(const SentencePieceSpec& spec) {
  Json list = Json::array();
  list.push_back({{"type", "Replace"}, {"pattern", {{"String", kSpaceSymbol}}}, {"content", " "}});
  list.push_back({{"type", "ByteFallback"}});
  list.push_back({{"type", "Fuse"}});
  if (spec.add_dummy_prefix) {
    list.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  return {{"type", "Sequence"}, {"decoders", list}};
}

Json post_processor(const SentencePieceSpec& spec, std::span<const std::int32_t> before,
                    std::span<const std::int32_t> after) {
  if (before.empty() && after.empty()) return nullptr;
  Json tokens = Json::object();
  const auto sequence = [&](const char* name, int type) {
    Json list = Json::array();
    const auto add = [&](std::int32_t id) {
      const std::string& text = spec.pieces[static_cast<std::size_t>(id)].text;
      list.push_back({{"SpecialToken", {{"id", text}, {"type_id", type}}}});
      tokens[text] = {{"id", text}, {"ids", {id}}, {"tokens", {text}}};
    };
    for (const std::int32_t id : before) add(id);
    list.push_back({{"Sequence", {{"id", name}, {"type_id", type}}}});
    for (const std::int32_t id : after) add(id);
    return list;
  };
  const Json single = sequence("A", 0);
  Json pair = single;
  for (const Json& part : sequence("B", 1)) pair.push_back(part);
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", pair},
          {"special_tokens", tokens}};
}

Json model(const SentencePieceSpec& spec) {
  Json::object_t vocab;  // appended to, since looking a key up first is linear
  std::string unknown;
  for (std::size_t i = 0; i < spec.pieces.size(); ++i) {
    vocab.emplace_back(spec.pieces[i].text, i);
    if (spec.pieces[i].type == Type::kUnknown) unknown = spec.pieces[i].text;
  }
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", unknown},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", true},
          {"byte_fallback", spec.byte_fallback},
          {"ignore_merges", false},
          {"vocab", vocab},
          {"merges", Merges(spec).to_json()}};
}

Json added_tokens(const SentencePieceSpec& spec) {
  Json list = Json::array();
  for (std::size_t i = 0; i < spec.pieces.size(); ++i) {
    if (spec.pieces[i].type != Type::kControl) continue;
    list.push_back({{"id", i},
                    {"content", spec.pieces[i].text},
                    {"single_word", false},
                    {"lstrip", false},
                    {"rstrip", false},
                    {"normalized", false},
                    {"special", true}});
  }
  return list;
}

}  // namespace

std::string obstacle_to_json(const SentencePieceSpec& spec) {
  if (spec.algorithm != SentencePieceSpec::Algorithm::kBpe) return "its algorithm is Unigram";
  if (!spec.precompiled_charsmap.empty()) return "it normalizes characters";
  if (spec.remove_extra_whitespaces) return "it removes extra white space";
  if (!spec.escape_whitespaces) return "it does not escape spaces";
  for (const Piece& piece : spec.pieces) {
    if (std::string found = obstacle_of_piece(piece); !found.empty()) return found;
  }
  if (const Piece* tied = Merges(spec).tied()) {
    return fmt::format("the piece \"{}\" has the score of another", tied->text);
  }
  return "";
}

std::string sentence_piece_to_json(const SentencePieceSpec& spec,
                                   std::span<const std::int32_t> before,
                                   std::span<const std::int32_t> after, std::string_view origin) {
  if (const std::string obstacle = obstacle_to_json(spec); !obstacle.empty()) {
    throw user_error(
        "{}: no tokenizer.json gives the ids of this SentencePiece model, because {}; read it with "
        "the sentencepiece library",
        origin, obstacle);
  }
  const Json json = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", added_tokens(spec)},
                     {"normalizer", normalizer(spec)},
                     {"pre_tokenizer", nullptr},
                     {"post_processor", post_processor(spec, before, after)},
                     {"decoder", decoder(spec)},
                     {"model", model(spec)}};
  return json.dump(1) + "\n";
}

}  // namespace atl::text
