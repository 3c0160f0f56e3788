#include "atoll/text/added_tokens.h"

#include <algorithm>

#include "atoll/text/unicode_classes.h"
#include "atoll/text/utf8.h"

namespace atl::text {

namespace {

// Whether a word character ends at byte `at` of a text, or begins there. Bytes that are not UTF-8
// are no characters.
bool word_before(std::string_view text, std::size_t at) {
  std::size_t begin = at;
  while (begin > 0 && at - begin < 4) {
    const auto byte = static_cast<unsigned char>(text[--begin]);
    if ((byte & 0xC0) != 0x80) break;
  }
  const std::string_view last = text.substr(begin, at - begin);
  if (last.empty()) return false;
  const Utf8Step step = utf8_step(last);
  return step.kind == Utf8Kind::kValid && step.size == last.size() &&
         is_of_class(decode_utf8(last), CharClass::kWord);
}

bool word_after(std::string_view text, std::size_t at) {
  if (at == text.size()) return false;
  const Utf8Step step = utf8_step(text.substr(at));
  return step.kind == Utf8Kind::kValid &&
         is_of_class(decode_utf8(text.substr(at, step.size)), CharClass::kWord);
}

}  // namespace

void AddedTokenFinder::add(const AddedToken& token) {
  std::int32_t node = 0;
  for (const char c : token.content) {
    const auto byte = static_cast<unsigned char>(c);
    std::int32_t next = child(node, byte);
    if (next < 0) {
      next = static_cast<std::int32_t>(nodes_.size());
      nodes_[node].children.emplace_back(byte, next);
      nodes_.emplace_back();
    }
    node = next;
  }
  nodes_[node].token = static_cast<std::int32_t>(tokens_.size());
  tokens_.push_back(token);
  starts_[static_cast<unsigned char>(token.content.front())] = true;
}

std::int32_t AddedTokenFinder::child(std::int32_t node, unsigned char byte) const {
  for (const auto& [label, next] : nodes_[node].children) {
    if (label == byte) return next;
  }
  return -1;
}

std::int32_t AddedTokenFinder::longest_at(std::string_view text, std::size_t at) const {
  std::int32_t longest = -1;
  for (std::int32_t node = 0; at < text.size(); ++at) {
    node = child(node, static_cast<unsigned char>(text[at]));
    if (node < 0) break;
    if (nodes_[node].token >= 0) longest = nodes_[node].token;
  }
  return longest;
}

std::optional<AddedTokenFinder::Match> AddedTokenFinder::find(std::string_view text,
                                                              std::size_t start, bool parse_special,
                                                              std::span<const std::size_t> literal,
                                                              std::size_t offset) const {
  for (std::size_t at = start; at < text.size(); ++at) {
    if (!starts_[static_cast<unsigned char>(text[at])]) continue;
    const std::int32_t index = longest_at(text, at);
    if (index < 0) continue;
    const AddedToken& token = tokens_[index];
    std::size_t end = at + token.content.size();
    const bool in_word = token.single_word && (word_before(text, at) || word_after(text, end));
    const bool is_literal = std::binary_search(literal.begin(), literal.end(), offset + at);
    if (in_word || (token.special && (!parse_special || is_literal))) {
      at = end - 1;
      continue;
    }
    const std::size_t begin = token.lstrip ? trailing_white_space(text.substr(0, at), start) : at;
    if (token.rstrip) end += leading_white_space(text.substr(end));
    return Match{begin, end, token.id};
  }
  return std::nullopt;
}

std::optional<AddedTokenFinder::Match> AddedTokenFinder::find_special(std::string_view text,
                                                                      std::size_t start) const {
  for (std::size_t at = start; at < text.size(); ++at) {
    if (!starts_[static_cast<unsigned char>(text[at])]) continue;
    const std::int32_t index = longest_at(text, at);
    if (index < 0) continue;
    const std::size_t end = at + tokens_[index].content.size();
    if (tokens_[index].special) return Match{at, end, tokens_[index].id};
    at = end - 1;
  }
  return std::nullopt;
}

}  // namespace atl::text
