#include "atoll/text/word_model.h"

#include <algorithm>
#include <limits>

#include "atoll/base/error.h"
#include "atoll/text/byte_level.h"
#include "atoll/text/utf8.h"

namespace atl::text {

namespace {

// What an unknown character scores below the worst piece.
constexpr double kUnknownPenalty = 10.0;

// The first character; a byte that belongs to none counts as one.
std::size_t char_size(std::string_view text) {
  const Utf8Step step = utf8_step(text);
  return step.kind == Utf8Kind::kValid ? step.size : 1;
}

std::size_t num_chars(std::string_view text) {
  std::size_t count = 0;
  for (; !text.empty(); ++count) text.remove_prefix(char_size(text));
  return count;
}

}  // namespace

WordModel::WordModel(const TokenizerSpec& spec, const TokenIndex& vocab, std::string_view origin)
    : kind_(spec.model_kind), spec_(spec.words), vocab_(vocab) {
  for (const auto& [token, id] : spec.model.vocab) longest_ = std::max(longest_, token.size());
  if (kind_ != ModelKind::kUnigram) {
    unk_id_ = vocab.find(spec.model.unk_token.value_or(""));
    return;
  }
  unk_id_ = spec_.unk_id;
  if (unk_id_ && static_cast<std::size_t>(*unk_id_) >= spec.model.vocab.size()) {
    throw damaged_error("{}: model.unk_id: {} is outside the vocabulary of {} tokens", origin,
                        *unk_id_, spec.model.vocab.size());
  }
  // Every position of a word is compared with it.
  constexpr std::size_t kLongest = 1024;
  if (longest_ > kLongest) {
    throw damaged_error("{}: model.vocab: a token of {} bytes; at most {} are allowed", origin,
                        longest_, kLongest);
  }
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [token, id] : spec.model.vocab) {
    if (!token.empty()) pieces_.insert(token, id);
    least = std::min(least, spec_.scores[static_cast<std::size_t>(id)]);
  }
  unknown_score_ = least - kUnknownPenalty;
  for (int byte = 0; byte < 256 && spec.model.byte_fallback; ++byte) {
    byte_ids_.push_back(vocab.find(byte_token(static_cast<unsigned char>(byte))).value_or(-1));
  }
}

bool WordModel::encode_word(std::string_view word, Scratch& scratch,
                            std::vector<std::int32_t>& out) const {
  const std::size_t size = out.size();
  bool done = false;
  if (kind_ == ModelKind::kUnigram) {
    done = encode_unigram(word, scratch, out);
  } else if (kind_ == ModelKind::kWordPiece) {
    done = encode_pieces(word, scratch, out);
  } else if (const auto id = vocab_.find(word)) {
    out.push_back(*id);
    done = true;
  } else {
    done = add_unknown(out);
  }
  if (!done) out.resize(size);
  return done;
}

bool WordModel::add_unknown(std::vector<std::int32_t>& out) const {
  if (unk_id_) out.push_back(*unk_id_);
  return unk_id_.has_value();
}

bool WordModel::encode_pieces(std::string_view word, Scratch& scratch,
                              std::vector<std::int32_t>& out) const {
  if (num_chars(word) > spec_.max_chars) return add_unknown(out);
  const std::size_t size = out.size();
  for (std::size_t begin = 0; begin < word.size();) {
    // No token is longer than the longest.
    std::size_t end = std::min(word.size(), begin + longest_);
    std::optional<std::int32_t> id;
    for (; end > begin; --end) {
      const bool splits_char =
          end < word.size() && (static_cast<unsigned char>(word[end]) & 0xC0) == 0x80;
      if (splits_char) continue;
      std::string_view piece = word.substr(begin, end - begin);
      if (begin > 0) piece = scratch.spelled.assign(spec_.continuing_prefix).append(piece);
      id = vocab_.find(piece);
      if (id) break;
    }
    if (!id) {
      out.resize(size);
      return add_unknown(out);
    }
    out.push_back(*id);
    begin = end;
  }
  return true;
}

bool WordModel::find_paths(std::string_view word, Scratch& scratch) const {
  auto& paths = scratch.paths;
  paths.assign(word.size() + 1, {});
  for (std::size_t at = 0; at < word.size();) {
    const double here = paths[at].score;
    const std::size_t one = char_size(word.substr(at));
    const auto offer = [&](std::size_t end, std::int32_t id, double score) {
      if (paths[end].reached && score <= paths[end].score) return;
      paths[end] = {score, id, static_cast<std::uint32_t>(at), true};
    };
    bool has_char = false;
    std::int32_t node = ByteTrie::kRoot;
    for (std::size_t i = at; i < word.size(); ++i) {
      node = pieces_.step(node, word[i]);
      if (node < 0) break;
      const std::int32_t id = pieces_.value(node);
      if (id < 0) continue;
      offer(i + 1, id, spec_.scores[static_cast<std::size_t>(id)] + here);
      if (i + 1 - at == one) has_char = true;
    }
    if (!has_char) {
      const double score = unknown_score_ + here;
      const auto& there = paths[at + one];
      if (!unk_id_ && !(there.reached && score <= there.score)) return false;
      offer(at + one, unk_id_.value_or(-1), score);
    }
    at += one;
  }
  return true;
}

// Neighbouring unknown characters are one piece.
void WordModel::collect_pieces(std::string_view word, Scratch& scratch) const {
  auto& pieces = scratch.pieces;
  pieces.clear();
  for (std::size_t end = word.size(); end > 0;) {
    const Scratch::Path& path = scratch.paths[end];
    const bool unknown = unk_id_ && path.id == *unk_id_;
    const std::string_view text = word.substr(path.begin, end - path.begin);
    if (unknown && !pieces.empty() && pieces.back().unknown) {
      pieces.back().text = word.substr(path.begin, text.size() + pieces.back().text.size());
    } else {
      pieces.push_back({text, unknown});
    }
    end = path.begin;
  }
  std::reverse(pieces.begin(), pieces.end());
}

bool WordModel::encode_unigram(std::string_view word, Scratch& scratch,
                               std::vector<std::int32_t>& out) const {
  if (!find_paths(word, scratch)) return false;
  collect_pieces(word, scratch);
  return std::all_of(scratch.pieces.begin(), scratch.pieces.end(),
                     [&](const Scratch::Piece& piece) { return emit(piece.text, out); });
}

// The library looks a piece up by its text, one of unknown characters too.
bool WordModel::emit(std::string_view piece, std::vector<std::int32_t>& out) const {
  if (const auto id = vocab_.find(piece)) {
    out.push_back(*id);
    return true;
  }
  const auto has_token = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)] >= 0; };
  if (byte_ids_.empty() || !std::all_of(piece.begin(), piece.end(), has_token)) {
    return add_unknown(out);
  }
  for (const char c : piece) out.push_back(byte_ids_[static_cast<unsigned char>(c)]);
  return true;
}

}  // namespace atl::text
