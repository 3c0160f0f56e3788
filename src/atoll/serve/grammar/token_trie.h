#pragma once

// The tokens of a vocabulary as a tree of their bytes, so that tokens that begin alike are tried
// together.

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "atoll/text/tokenizer.h"

namespace atl::serve::grammar {

/// A tree of tokens in one array: a node is followed by what lies under it.
class TokenTrie {
 public:
  /// A byte of one token or more.
  struct Node {
    std::int32_t next = 0;         ///< the first node that does not lie under this one
    std::int32_t first_token = 0;  ///< in tokens(); those of a node end where the next node's begin
    std::uint16_t depth = 0;       ///< how many bytes lead here; 1 for a token's first byte
    std::uint8_t byte = 0;
  };

  /// Of tokens and their bytes, none of which is empty or longer than kMaxBytes.
  explicit TokenTrie(std::vector<std::pair<std::string_view, std::int32_t>> tokens);

  /// All nodes, and one behind them that has no byte.
  const std::vector<Node>& nodes() const { return nodes_; }
  /// Ids of tokens, in the order of their nodes.
  const std::vector<std::int32_t>& tokens() const { return tokens_; }
  /// The depth of the deepest node.
  std::size_t max_depth() const { return max_depth_; }

  static constexpr std::size_t kMaxBytes = 1024;

 private:
  std::vector<Node> nodes_;
  std::vector<std::int32_t> tokens_;
  std::size_t max_depth_ = 0;
};

/// All tokens that a text with a form may have: neither special ones nor those without bytes.
/// Immutable, so threads may share it.
class Vocabulary {
 public:
  explicit Vocabulary(const Tokenizer& tokenizer);

  /// One more than the highest id.
  std::int32_t size() const { return size_; }
  /// The bytes of a token; empty for one that no text with a form has.
  std::string_view bytes(std::int32_t token) const;
  /// Tokens of at most kShortBytes; the rest, of which there are few.
  const TokenTrie& short_tokens() const { return *short_; }
  const TokenTrie& long_tokens() const { return *long_; }

  static constexpr std::size_t kShortBytes = 16;

 private:
  Tokenizer tokenizer_;  // owns the bytes
  std::int32_t size_ = 0;
  std::unique_ptr<const TokenTrie> short_, long_;
};

}  // namespace atl::serve::grammar
