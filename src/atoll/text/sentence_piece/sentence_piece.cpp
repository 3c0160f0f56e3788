#include "atoll/text/sentence_piece/sentence_piece.h"

#include <algorithm>
#include <limits>

#include "atoll/text/byte_level.h"
#include "atoll/text/utf8.h"

namespace atl::text {

namespace {

using Type = SentencePieceSpec::Type;

// What an unknown character scores below the worst piece.
constexpr float kUnknownPenalty = 10.0F;

bool made_from_text(Type type) {
  return type == Type::kNormal || type == Type::kUserDefined || type == Type::kUnused;
}

// Whether a space follows something else in a piece.
bool reaches_over_space(std::string_view piece, std::string_view space) {
  while (piece.starts_with(space)) piece.remove_prefix(space.size());
  return piece.find(space) != std::string_view::npos;
}

// The first character; a byte that belongs to none counts as one.
std::size_t char_size(std::string_view text) {
  const Utf8Step step = utf8_step(text);
  return step.kind == Utf8Kind::kValid ? step.size : 1;
}

}  // namespace

SentencePiece::SentencePiece(const SentencePieceSpec& spec, std::string_view origin)
    : spec_(spec),
      charsmap_(spec_.precompiled_charsmap, origin),
      min_score_(std::numeric_limits<float>::max()),
      max_score_(std::numeric_limits<float>::min()) {
  spec_.precompiled_charsmap.clear();
  byte_ids_.resize(256, -1);
  for (std::int32_t id = 0; id < static_cast<std::int32_t>(spec_.pieces.size()); ++id) {
    const SentencePieceSpec::Piece& piece = spec_.pieces[id];
    if (made_from_text(piece.type)) {
      ids_.emplace(piece.text, id);
      has_borders_ &= piece.type != Type::kUnused && !reaches_over_space(piece.text, space());
      longest_piece_ = std::max(longest_piece_, piece.text.size());
      if (spec_.algorithm == SentencePieceSpec::Algorithm::kUnigram) {
        pieces_.insert(piece.text, id);
      }
    }
    if (piece.type == Type::kUnknown) unk_id_ = id;
    if (piece.type == Type::kUserDefined) user_defined_.insert(piece.text, id);
    if (piece.type == Type::kByte) byte_ids_[byte_of_token(piece.text).value_or(0)] = id;
    if (piece.type == Type::kNormal) {
      min_score_ = std::min(min_score_, piece.score);
      max_score_ = std::max(max_score_, piece.score);
    }
  }
}

void SentencePiece::encode(std::string_view text, Scratch& scratch, std::vector<std::int32_t>& out,
                           Part part) const {
  // Longer than any rule of a charsmap: those of Unicode's forms have 18 characters at most.
  constexpr std::size_t kLongestRule = 256;
  if (part.first) {
    scratch.raw.clear();
    scratch.text.clear();
    scratch.has_begun = scratch.after_unknown = false;
    scratch.score = 0;
  }
  const std::size_t hold = part.last ? 0 : std::max(longest_piece_, kLongestRule);
  if (part.first && part.last) {
    normalize(text, hold, scratch);
  } else {
    scratch.raw += text;
    scratch.raw.erase(0, normalize(scratch.raw, hold, scratch));
  }
  if (part.last) {
    const bool removes = spec_.remove_extra_whitespaces;
    while (removes && scratch.text.ends_with(space())) {
      scratch.text.resize(scratch.text.size() - space().size());
    }
  }
  const std::size_t end = part.last ? scratch.text.size() : last_border(scratch);
  scratch.now = std::string_view(scratch.text).substr(0, end);
  scratch.pieces.clear();
  if (end == 0) return;
  if (spec_.algorithm == SentencePieceSpec::Algorithm::kBpe) {
    cut_bpe(scratch);
  } else {
    cut_unigram(scratch);
  }
  emit(scratch, out);
  scratch.text.erase(0, end);
}

std::size_t SentencePiece::last_border(const Scratch& scratch) const {
  if (!has_borders_) return 0;
  const std::string_view text = scratch.text;
  for (std::size_t at = text.rfind(space()); at != std::string_view::npos && at > 0;
       at = text.rfind(space(), at - 1)) {
    if (!text.substr(0, at).ends_with(space())) return at;
  }
  return 0;
}

void SentencePiece::emit(Scratch& scratch, std::vector<std::int32_t>& out) const {
  for (const auto& [piece, id] : scratch.pieces) {
    const bool unknown = id == unk_id_;
    if (unknown && spec_.byte_fallback) {
      for (const char c : piece) out.push_back(byte_ids_[static_cast<unsigned char>(c)]);
    } else if (!(unknown && scratch.after_unknown)) {  // neighbouring unknown pieces are one
      out.push_back(id);
    }
    scratch.after_unknown = unknown;
  }
}

SentencePiece::Normalized SentencePiece::normalize_prefix(std::string_view text) const {
  if (const std::size_t size = user_defined_.longest_prefix(text); size > 0) {
    return {size, text.substr(0, size)};
  }
  if (const CharsMap::Rule rule = charsmap_.longest(text); rule.size > 0) {
    return {rule.size, rule.replacement};
  }
  const Utf8Step step = utf8_step(text);
  if (step.kind == Utf8Kind::kValid) return {step.size, text.substr(0, step.size)};
  return {1, spec_.byte_fallback ? text.substr(0, 1) : kReplacementCharacter};
}

// Passes over spaces that the text must not begin with. False when the text has not begun then.
bool SentencePiece::begin_text(std::string_view& text, std::size_t hold, Scratch& scratch) const {
  const bool removes = spec_.remove_extra_whitespaces;
  while (removes && text.size() > hold) {
    const Normalized first = normalize_prefix(text);
    if (first.text != " ") break;
    text.remove_prefix(first.size);
  }
  if (text.size() <= hold) return false;
  if (spec_.add_dummy_prefix) scratch.text += space();
  scratch.after_space = removes;
  return true;
}

std::size_t SentencePiece::normalize(std::string_view text, std::size_t hold,
                                     Scratch& scratch) const {
  const std::size_t size_before = text.size();
  scratch.has_begun = scratch.has_begun || begin_text(text, hold, scratch);
  std::string& out = scratch.text;
  while (text.size() > hold) {
    auto [size, piece] = normalize_prefix(text);
    while (scratch.after_space && piece.starts_with(' ')) piece.remove_prefix(1);
    for (const char c : piece) {
      if (c == ' ') {
        out += space();
      } else {
        out.push_back(c);
      }
    }
    if (!piece.empty()) {
      scratch.after_space = spec_.remove_extra_whitespaces && piece.ends_with(' ');
    }
    text.remove_prefix(size);
  }
  return size_before - text.size();
}

std::int32_t SentencePiece::find(std::string_view piece) const {
  if (piece.size() > longest_piece_) return -1;
  const auto found = ids_.find(piece);
  return found == ids_.end() ? -1 : found->second;
}

// Of all neighbours that make a piece those with the best score merge first, the leftmost of equals
// first; O(n log n) by a heap whose stale entries are skipped when they surface.
void SentencePiece::cut_bpe(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  symbols.clear();
  scratch.heap.clear();
  scratch.unused_halves.clear();
  const std::string_view text = scratch.now;
  for (std::size_t at = 0; at < text.size(); at += symbols.back().size) {
    const std::size_t whole = user_defined_.longest_prefix(text.substr(at));
    const std::size_t size = whole > 0 ? whole : char_size(text.substr(at));
    const auto index = static_cast<std::int32_t>(symbols.size());
    symbols.push_back({at, size, index - 1, index + 1, whole > 0});
  }
  symbols.back().next = -1;
  for (std::int32_t i = 1; i < static_cast<std::int32_t>(symbols.size()); ++i) {
    queue(i - 1, i, scratch);
  }
  merge(scratch);
  for (std::int32_t i = 0; i >= 0; i = symbols[i].next) {
    emit_used(text.substr(symbols[i].begin, symbols[i].size), scratch);
  }
}

namespace {

bool comes_later(const SentencePiece::Scratch::Candidate& a,
                 const SentencePiece::Scratch::Candidate& b) {
  return a.score != b.score ? a.score < b.score : a.left > b.left;
}

}  // namespace

void SentencePiece::queue(std::int32_t left, std::int32_t right, Scratch& scratch) const {
  if (left < 0 || right < 0) return;
  const Scratch::Symbol& a = scratch.symbols[left];
  const Scratch::Symbol& b = scratch.symbols[right];
  if (a.frozen || b.frozen) return;
  const std::size_t size = a.size + b.size;
  const std::int32_t id = find(scratch.now.substr(a.begin, size));
  if (id < 0) return;
  scratch.heap.push_back({spec_.pieces[id].score, left, right, size});
  std::push_heap(scratch.heap.begin(), scratch.heap.end(), comes_later);
  if (spec_.pieces[id].type == Type::kUnused) scratch.unused_halves[id] = a.size;
}

void SentencePiece::merge(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), comes_later);
    const Scratch::Candidate best = heap.back();
    heap.pop_back();
    Scratch::Symbol& left = symbols[best.left];
    Scratch::Symbol& right = symbols[best.right];
    if (left.size == 0 || right.size == 0 || left.size + right.size != best.size) continue;
    left.size = best.size;
    left.next = right.next;
    if (right.next >= 0) symbols[right.next].previous = best.left;
    right.size = 0;
    queue(left.previous, best.left, scratch);
    queue(best.left, left.next, scratch);
  }
}

// Unused pieces fall apart again into what they were merged from.
void SentencePiece::emit_used(std::string_view piece, Scratch& scratch) const {
  scratch.stack.assign(1, piece);
  while (!scratch.stack.empty()) {
    const std::string_view top = scratch.stack.back();
    scratch.stack.pop_back();
    const std::int32_t id = find(top);
    const auto half = id >= 0 && spec_.pieces[id].type == Type::kUnused
                          ? scratch.unused_halves.find(id)
                          : scratch.unused_halves.end();
    if (half == scratch.unused_halves.end()) {
      scratch.pieces.emplace_back(top, id < 0 ? unk_id_ : id);
    } else {
      scratch.stack.push_back(top.substr(half->second));
      scratch.stack.push_back(top.substr(0, half->second));
    }
  }
}

// Viterbi's search for the pieces whose scores have the greatest sum (Kudo 2018, "Subword
// Regularization", section 3.2). Sums are floats, as the library's are: near ties depend on it.
void SentencePiece::cut_unigram(Scratch& scratch) const {
  const std::string_view text = scratch.now;
  scratch.paths.assign(text.size() + 1, {});
  scratch.paths.front().score = scratch.score;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = char_size(text.substr(at));
    relax_from(at, size, scratch);
    at += size;
  }
  for (std::size_t end = text.size(); end > 0;) {
    const Scratch::Path& path = scratch.paths[end];
    scratch.pieces.emplace_back(text.substr(path.begin, end - path.begin), path.id);
    end = path.begin;
  }
  std::reverse(scratch.pieces.begin(), scratch.pieces.end());
  scratch.score = scratch.paths.back().score;
}

void SentencePiece::relax_from(std::size_t begin, std::size_t char_size, Scratch& scratch) const {
  const std::string_view text = scratch.now;
  const float here = scratch.paths[begin].score;
  const auto offer = [&](std::size_t end, std::int32_t id, double score) {
    Scratch::Path& path = scratch.paths[end];
    if (path.reached && score <= path.score) return;
    path = {static_cast<float>(score), id, begin, true};
  };
  bool has_char = false;
  std::int32_t node = ByteTrie::kRoot;
  for (std::size_t i = begin; i < text.size(); ++i) {
    node = pieces_.step(node, text[i]);
    if (node < 0) break;
    const std::int32_t id = pieces_.value(node);
    if (id < 0 || spec_.pieces[id].type == Type::kUnused) continue;
    const std::size_t size = i + 1 - begin;
    // A user-defined piece gets what makes it win always.
    const double score = spec_.pieces[id].type == Type::kUserDefined
                             ? static_cast<float>(size) * max_score_ - 0.1
                             : spec_.pieces[id].score;
    offer(i + 1, id, score + here);
    if (size == char_size) has_char = true;
  }
  if (!has_char) offer(begin + char_size, unk_id_, min_score_ - kUnknownPenalty + here);
}

}  // namespace atl::text
