#include "atoll/text/bpe_model.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/text/byte_level.h"
#include "atoll/text/utf8.h"

namespace atl::text {

namespace {

// Below this many symbols a scan for the best pair beats a heap.
constexpr std::size_t kShortWord = 48;

// The character that is the whole of `token`, if it is one.
std::optional<char32_t> only_char(std::string_view token) {
  if (token.empty()) return std::nullopt;
  const Utf8Step step = utf8_step(token);
  if (step.kind != Utf8Kind::kValid || step.size != token.size()) return std::nullopt;
  return decode_utf8(token);
}

}  // namespace

BpeModel::BpeModel(const BpeSpec& spec, const TokenIndex& vocab, std::string_view origin)
    : byte_level_(spec.byte_level),
      byte_fallback_(spec.byte_fallback),
      fuse_unk_(spec.fuse_unk),
      continuing_prefix_(spec.continuing_prefix),
      end_suffix_(spec.end_suffix),
      has_affixes_(!spec.continuing_prefix.empty() || !spec.end_suffix.empty()),
      merges_(spec.merges.size()) {
  if (byte_level_ || byte_fallback_) index_bytes(vocab, origin);
  if (!byte_level_) index_chars(spec, vocab, origin);
  index_merges(spec, vocab, origin);
  if (!spec.ignore_merges) return;
  for (const auto& [token, id] : spec.vocab) {
    if (!byte_level_) {
      whole_words_.add(token, id);
    } else if (const auto bytes = from_byte_level(token)) {
      whole_words_.add(*bytes, id);
    }
  }
}

void BpeModel::index_bytes(const TokenIndex& vocab, std::string_view origin) {
  for (const Place place : {kInside, kFirst, kLast, kOnly}) {
    const bool inside = place == kInside || place == kLast;
    const bool last = place == kLast || place == kOnly;
    const std::string_view prefix = inside ? std::string_view(continuing_prefix_) : "";
    const std::string_view suffix = last ? std::string_view(end_suffix_) : "";
    for (int value = 0; value < 256; ++value) {
      const auto byte = static_cast<unsigned char>(value);
      std::string spelled =
          byte_level_ ? to_byte_level({reinterpret_cast<const char*>(&byte), 1}) : byte_token(byte);
      spelled.insert(0, prefix).append(suffix);
      const std::optional<std::int32_t> found = vocab.find(spelled);
      // Published byte-level vocabularies lack bytes that their training text did not have.
      if (!found && !byte_level_) {
        throw user_error(
            "{}: model.vocab has no token for byte 0x{:02x} (\"{}\"): byte_fallback needs the "
            "whole byte alphabet; train with it",
            origin, value, spelled);
      }
      byte_ids_[place][byte] = found.value_or(-1);
    }
  }
}

void BpeModel::index_chars(const BpeSpec& spec, const TokenIndex& vocab, std::string_view origin) {
  for (const auto& [token, id] : spec.vocab) {
    for (const Place place : {kInside, kFirst, kLast, kOnly}) {
      std::string_view rest = token;
      if (place == kInside || place == kLast) {
        if (!rest.starts_with(continuing_prefix_)) continue;
        rest.remove_prefix(continuing_prefix_.size());
      }
      if (place == kLast || place == kOnly) {
        if (!rest.ends_with(end_suffix_)) continue;
        rest.remove_suffix(end_suffix_.size());
      }
      if (const auto c = only_char(rest)) char_ids_[place].emplace(*c, id);
      if (!has_affixes_) break;
    }
  }
  if (!spec.unk_token) return;
  const std::optional<std::int32_t> found = vocab.find(*spec.unk_token);
  if (!found) {
    throw damaged_error("{}: model.unk_token: model.vocab has no \"{}\"", origin, *spec.unk_token);
  }
  unk_id_ = *found;
}

void BpeModel::index_merges(const BpeSpec& spec, const TokenIndex& vocab, std::string_view origin) {
  const auto id_of = [&](std::size_t rank, const std::string& token) {
    const std::optional<std::int32_t> found = vocab.find(token);
    if (!found) {
      throw damaged_error(
          "{}: model.merges[{}] (\"{}\", \"{}\") needs the token \"{}\", which "
          "model.vocab does not have",
          origin, rank, spec.merges[rank].first, spec.merges[rank].second, token);
    }
    return *found;
  };
  std::string both;
  for (std::size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const auto& [left, right] = spec.merges[rank];
    const IdPair pair{id_of(rank, left), id_of(rank, right)};
    // The right one is inside a word, and its prefix is not.
    if (!right.starts_with(continuing_prefix_)) {
      throw damaged_error("{}: model.merges[{}]: \"{}\" does not begin with \"{}\"", origin, rank,
                          right, continuing_prefix_);
    }
    both.assign(left).append(right, continuing_prefix_.size());
    merges_[pair] = {static_cast<std::uint32_t>(rank), id_of(rank, both)};  // last wins
  }
}

bool BpeModel::encode_word(std::string_view word, Scratch& scratch,
                           std::vector<std::int32_t>& out) const {
  if (whole_words_.size() > 0) {
    if (const std::optional<std::int32_t> id = whole_words_.find(word)) {
      out.push_back(*id);
      return true;
    }
  }
  scratch.symbols.clear();
  if (byte_level_) {
    if (!add_bytes(word, scratch)) return false;
  } else if (!add_chars(word, scratch)) {
    return false;
  }
  if (merges_.size() == 0) {
    // Nothing ever merges: byte and character tokenizers.
  } else if (scratch.symbols.size() <= kShortWord) {
    merge_short(scratch);
  } else {
    merge_long(scratch);
  }
  for (const Scratch::Symbol& symbol : scratch.symbols) out.push_back(symbol.id);
  return true;
}

bool BpeModel::add_bytes(std::string_view bytes, Scratch& scratch) const {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const Place at = place(i == 0, i + 1 == bytes.size());
    const std::int32_t id = byte_ids_[at][static_cast<unsigned char>(bytes[i])];
    if (id < 0) return false;
    scratch.symbols.push_back({id, kNoMerge, -1, -1});
  }
  return true;
}

bool BpeModel::add_chars(std::string_view word, Scratch& scratch) const {
  bool after_unk = false;
  bool first = true;
  while (!word.empty()) {
    const Utf8Step step = utf8_step(word);
    const std::string_view piece = word.substr(0, step.size);
    word.remove_prefix(step.size);
    const auto& ids = char_ids_[place(std::exchange(first, false), word.empty())];
    const auto known = step.kind == Utf8Kind::kValid ? ids.find(decode_utf8(piece)) : ids.end();
    const bool unk = known == ids.end() && !byte_fallback_;
    if (known != ids.end()) {
      scratch.symbols.push_back({known->second, kNoMerge, -1, -1});
    } else if (byte_fallback_) {
      add_bytes(piece, scratch);
    } else if (unk_id_ < 0) {
      return false;
    } else if (!(after_unk && fuse_unk_)) {
      scratch.symbols.push_back({unk_id_, kNoMerge, -1, -1});
    }
    after_unk = unk;
  }
  return true;
}

std::size_t BpeModel::first_unknown(std::string_view word) const {
  std::size_t at = 0;
  while (at < word.size()) {
    if (byte_level_) {
      const Place here = place(at == 0, at + 1 == word.size());
      if (byte_ids_[here][static_cast<unsigned char>(word[at])] < 0) break;
      ++at;
      continue;
    }
    const Utf8Step step = utf8_step(word.substr(at));
    if (step.kind != Utf8Kind::kValid) break;
    const Place here = place(at == 0, at + step.size == word.size());
    if (!char_ids_[here].contains(decode_utf8(word.substr(at, step.size)))) break;
    at += step.size;
  }
  return at;
}

void BpeModel::merge_short(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
    symbols[i].rank = rank_of(symbols[i].id, symbols[i + 1].id);
  }
  while (true) {
    const auto best =
        std::min_element(symbols.begin(), symbols.end(),
                         [](const auto& a, const auto& b) { return a.rank < b.rank; });
    if (best == symbols.end() || best->rank == kNoMerge) return;
    best->id = merges_.find({best->id, (best + 1)->id})->id;
    symbols.erase(best + 1);
    best->rank = best + 1 == symbols.end() ? kNoMerge : rank_of(best->id, (best + 1)->id);
    if (best != symbols.begin()) (best - 1)->rank = rank_of((best - 1)->id, best->id);
  }
}

// A doubly linked list of symbols and a heap of the pairs that could merge; pairs whose symbols
// have changed since are skipped when they surface. O(n log n) where the scan would be O(n^2).
void BpeModel::merge_long(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  const auto worse = [](const Scratch::Candidate& a, const Scratch::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
  };
  heap.clear();
  const auto queue = [&](std::int32_t position) {
    const std::int32_t next = symbols[position].next;
    if (next < 0) return;
    const std::uint32_t rank = rank_of(symbols[position].id, symbols[next].id);
    if (rank == kNoMerge) return;
    heap.push_back({rank, position, symbols[position].id, symbols[next].id});
    std::push_heap(heap.begin(), heap.end(), worse);
  };
  const auto size = static_cast<std::int32_t>(symbols.size());
  for (std::int32_t i = 0; i < size; ++i) {
    symbols[i].previous = i - 1;
    symbols[i].next = i + 1 < size ? i + 1 : -1;
  }
  for (std::int32_t i = 0; i < size; ++i) queue(i);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), worse);
    const Scratch::Candidate best = heap.back();
    heap.pop_back();
    Scratch::Symbol& left = symbols[best.position];
    if (left.id != best.left || left.next < 0 || symbols[left.next].id != best.right) continue;
    Scratch::Symbol& right = symbols[left.next];
    left.id = merges_.find({best.left, best.right})->id;
    right.id = -1;  // gone
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].previous = best.position;
    queue(best.position);
    if (left.previous >= 0) queue(left.previous);
  }
  std::erase_if(symbols, [](const Scratch::Symbol& symbol) { return symbol.id < 0; });
}

}  // namespace atl::text
