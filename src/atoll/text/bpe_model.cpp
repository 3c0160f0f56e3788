#include "atoll/text/bpe_model.h"

#include <algorithm>
#include <optional>

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
      merges_(spec.merges.size()) {
  for (int value = 0; value < 256 && (byte_level_ || byte_fallback_); ++value) {
    const auto byte = static_cast<unsigned char>(value);
    const std::string spelled =
        byte_level_ ? to_byte_level({reinterpret_cast<const char*>(&byte), 1}) : byte_token(byte);
    const std::optional<std::int32_t> found = vocab.find(spelled);
    // Published byte-level vocabularies lack bytes that their training text did not have.
    if (!found && !byte_level_) {
      throw user_error(
          "{}: model.vocab has no token for byte 0x{:02x} (\"{}\"): byte_fallback needs the whole "
          "byte alphabet; train with it",
          origin, value, spelled);
    }
    byte_ids_[byte] = found.value_or(-1);
  }
  if (!byte_level_) {
    for (const auto& [token, id] : spec.vocab) {
      if (const auto c = only_char(token)) char_ids_.emplace(*c, id);
    }
    if (spec.unk_token) {
      const std::optional<std::int32_t> found = vocab.find(*spec.unk_token);
      if (!found) {
        throw damaged_error("{}: model.unk_token: model.vocab has no \"{}\"", origin,
                            *spec.unk_token);
      }
      unk_id_ = *found;
    }
  }
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
    both.assign(left).append(right);
    merges_[pair] = {static_cast<std::uint32_t>(rank), id_of(rank, both)};  // last wins
  }
  if (!spec.ignore_merges) return;
  for (const auto& [token, id] : spec.vocab) {
    if (!byte_level_) {
      whole_words_.add(token, id);
    } else if (const auto bytes = from_byte_level(token)) {
      whole_words_.add(*bytes, id);
    }
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
  for (const char byte : bytes) {
    const std::int32_t id = byte_ids_[static_cast<unsigned char>(byte)];
    if (id < 0) return false;
    scratch.symbols.push_back({id, kNoMerge, -1, -1});
  }
  return true;
}

bool BpeModel::add_chars(std::string_view word, Scratch& scratch) const {
  bool after_unk = false;
  while (!word.empty()) {
    const Utf8Step step = utf8_step(word);
    const std::string_view piece = word.substr(0, step.size);
    word.remove_prefix(step.size);
    const auto known =
        step.kind == Utf8Kind::kValid ? char_ids_.find(decode_utf8(piece)) : char_ids_.end();
    const bool unk = known == char_ids_.end() && !byte_fallback_;
    if (known != char_ids_.end()) {
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
  if (byte_level_) {
    while (at < word.size() && byte_ids_[static_cast<unsigned char>(word[at])] >= 0) ++at;
    return at;
  }
  while (at < word.size()) {
    const Utf8Step step = utf8_step(word.substr(at));
    if (step.kind != Utf8Kind::kValid) break;
    if (!char_ids_.contains(decode_utf8(word.substr(at, step.size)))) break;
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
