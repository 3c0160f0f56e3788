#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "atoll/text/tokenizer_spec.h"

namespace atl::text {

/// Finds added tokens in text: the leftmost, and of those that start there the longest.
class AddedTokenFinder {
 public:
  /// One occurrence: bytes [begin, end), white space that the token takes along included.
  struct Match {
    std::size_t begin;
    std::size_t end;
    std::int32_t id;
  };

  void add(const AddedToken& token);
  bool empty() const { return nodes_.size() == 1; }

  /// The first occurrence that begins at or after `start`. Passed over are special tokens when
  /// `parse_special` is false, those at the bytes of `literal`, counted from `offset` bytes before
  /// `text`, and a single_word token that stands in a word.
  std::optional<Match> find(std::string_view text, std::size_t start, bool parse_special,
                            std::span<const std::size_t> literal = {},
                            std::size_t offset = 0) const;
  /// The first special token that is spelled at or after `start`, without white space round it.
  std::optional<Match> find_special(std::string_view text, std::size_t start) const;

 private:
  // A trie over bytes; node 0 is the root.
  struct Node {
    std::vector<std::pair<unsigned char, std::int32_t>> children;
    std::int32_t token = -1;  // an index into tokens_
  };
  std::int32_t child(std::int32_t node, unsigned char byte) const;
  // The longest token that starts at byte `at`: an index into tokens_, or -1.
  std::int32_t longest_at(std::string_view text, std::size_t at) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::vector<AddedToken> tokens_;
  std::array<bool, 256> starts_{};  // bytes that some token starts with
};

}  // namespace atl::text
