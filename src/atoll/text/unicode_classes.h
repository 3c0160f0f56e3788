#pragma once

// Which characters Hugging Face's tokenizers count as what, whatever Unicode the system has;
// tools/golden/unicode_classes.py asks the library.

#include <string>

namespace atl::text {

/// A set of characters that the library treats alike.
enum class CharClass {
  kWord,         ///< Regular expressions' word characters.
  kPunctuation,  ///< What Punctuation and BertPreTokenizer cut out.
  kAccent,       ///< What StripAccents removes.
  kBertAccent,   ///< What BertNormalizer's strip_accents removes.
  kControl,      ///< What BertNormalizer's clean_text removes.
  kBertSpace,    ///< What clean_text makes a space.
  kChinese,      ///< What BertNormalizer's handle_chinese_chars puts spaces round.
  kNmtRemoved,   ///< What Nmt removes.
  kNmtSpace,     ///< What Nmt makes a space.
};

/// Whether a code point is of a class.
bool is_of_class(char32_t code_point, CharClass char_class);

/// The class as it stands between the brackets of a regular expression.
std::string regex_ranges(CharClass char_class);

}  // namespace atl::text
