#pragma once

// Sets of characters, and the bytes that spell them in UTF-8.

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace atl::serve::grammar {

/// A range of code points, both ends included.
struct CharacterRange {
  char32_t first = 0;
  char32_t last = 0;

  bool operator==(const CharacterRange&) const = default;
};

/// A set of Unicode scalar values: surrogates are never members.
class CharacterSet {
 public:
  CharacterSet() = default;
  /// The set of the characters in some ranges, in any order; surrogates are left out.
  explicit CharacterSet(std::vector<CharacterRange> ranges);
  /// Every scalar value.
  static CharacterSet all();
  /// The characters of a text of ASCII.
  static CharacterSet of(std::string_view ascii);

  /// The members as ascending ranges that do not touch.
  const std::vector<CharacterRange>& ranges() const { return ranges_; }
  bool empty() const { return ranges_.empty(); }
  bool contains(char32_t character) const;
  /// The characters that are members of neither or not both: set algebra.
  CharacterSet complement() const;
  CharacterSet joined_with(const CharacterSet& other) const;
  CharacterSet without(const CharacterSet& other) const;

  bool operator==(const CharacterSet&) const = default;

 private:
  std::vector<CharacterRange> ranges_;
};

/// A range of bytes, both ends included.
struct ByteRange {
  std::uint8_t first = 0;
  std::uint8_t last = 0;

  bool operator==(const ByteRange&) const = default;
};

/// One to four ranges of bytes, one after another.
using ByteRanges = std::vector<ByteRange>;

/// The UTF-8 of a set's characters: a character's bytes lie in exactly one of the results.
std::vector<ByteRanges> utf8_ranges(const CharacterSet& set);

/// The code points of a text. Throws Error(kUser) that begins with `origin` where it is not UTF-8.
std::vector<char32_t> code_points(std::string_view text, std::string_view origin);

}  // namespace atl::serve::grammar
