#include "atoll/text/added_tokens.h"

#include <algorithm>

#include "atoll/text/utf8.h"

namespace atl::text {

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
    const bool is_literal = std::binary_search(literal.begin(), literal.end(), offset + at);
    if (token.special && (!parse_special || is_literal)) {
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
