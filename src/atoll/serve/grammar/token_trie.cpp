#include "atoll/serve/grammar/token_trie.h"

#include <algorithm>

namespace atl::serve::grammar {

TokenTrie::TokenTrie(std::vector<std::pair<std::string_view, std::int32_t>> tokens) {
  std::sort(tokens.begin(), tokens.end());
  std::string_view last;
  std::vector<std::size_t> open;  // the nodes of the last token's bytes
  const auto close = [&](std::size_t depth) {
    for (; open.size() > depth; open.pop_back()) {
      nodes_[open.back()].next = static_cast<std::int32_t>(nodes_.size());
    }
  };
  for (const auto& [bytes, token] : tokens) {
    const auto shared = std::mismatch(bytes.begin(), bytes.end(), last.begin(), last.end());
    close(static_cast<std::size_t>(shared.first - bytes.begin()));
    while (open.size() < bytes.size()) {
      const auto byte = static_cast<std::uint8_t>(bytes[open.size()]);
      open.push_back(nodes_.size());
      nodes_.push_back({.first_token = static_cast<std::int32_t>(tokens_.size()),
                        .depth = static_cast<std::uint16_t>(open.size()),
                        .byte = byte});
    }
    tokens_.push_back(token);
    max_depth_ = std::max(max_depth_, bytes.size());
    last = bytes;
  }
  close(0);
  nodes_.push_back({.next = static_cast<std::int32_t>(nodes_.size() + 1),
                    .first_token = static_cast<std::int32_t>(tokens_.size())});
}

Vocabulary::Vocabulary(const Tokenizer& tokenizer)
    : tokenizer_(tokenizer), size_(tokenizer.vocab_size()) {
  std::vector<std::pair<std::string_view, std::int32_t>> short_tokens, long_tokens;
  for (std::int32_t token = 0; token < size_; ++token) {
    const std::string_view spelled = bytes(token);
    if (spelled.empty()) continue;
    (spelled.size() <= kShortBytes ? short_tokens : long_tokens).emplace_back(spelled, token);
  }
  short_ = std::make_unique<TokenTrie>(std::move(short_tokens));
  long_ = std::make_unique<TokenTrie>(std::move(long_tokens));
}

std::string_view Vocabulary::bytes(std::int32_t token) const {
  if (token < 0 || token >= size_ || tokenizer_.is_special(token)) return {};
  const std::string_view spelled = tokenizer_.token_bytes(token);
  return spelled.size() <= TokenTrie::kMaxBytes ? spelled : std::string_view();
}

}  // namespace atl::serve::grammar
