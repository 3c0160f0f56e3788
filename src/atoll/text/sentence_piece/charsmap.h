#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace atl::text {

/// SentencePiece's precompiled normalization: a double-array trie of strings (Aoe 1989, "An
/// Efficient Digital Search Algorithm by Using a Double-Array Structure"; laid out as darts-clone
/// does) and their replacements. The file is not trusted: a walk stays inside the array whatever
/// the array says.
class CharsMap {
 public:
  /// `blob` is: the trie's bytes (u32), the trie (u32 each), replacements that end in a zero byte;
  /// all little-endian. Empty: no rules. Throws Error(kDamaged), naming `origin`.
  CharsMap(std::string_view blob, std::string_view origin);

  /// The rule for the longest string that a text starts with; size 0: there is none.
  struct Rule {
    std::size_t size = 0;
    std::string_view replacement;
  };
  /// Throws Error(kDamaged) for a rule whose replacement is outside the file, or so long that text
  /// would grow out of proportion.
  Rule longest(std::string_view text) const;
  /// The same for the shortest one. Hugging Face's library takes that.
  Rule shortest(std::string_view text) const;

 private:
  Rule find(std::string_view text, bool longest) const;

  std::vector<std::uint32_t> units_;
  std::string replacements_;
  std::string origin_;
};

}  // namespace atl::text
