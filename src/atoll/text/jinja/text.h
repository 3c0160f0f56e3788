#pragma once

// Python's str, on UTF-8: counted in characters, with Python's idea of white space and case.
// Bytes that are no UTF-8 count as one character each.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace atl::text::jinja {

/// The number of characters.
std::size_t count_characters(std::string_view text);
/// The characters, each a part of `text`.
std::vector<std::string_view> characters(std::string_view text);
/// The code point of one of characters(); U+FFFD for a byte that is no UTF-8.
char32_t code_point(std::string_view character);

/// Python's str.isspace for one character.
bool is_space(char32_t code_point);
/// Python's str.isalpha for one character.
bool is_alpha(char32_t code_point);
/// Python's str.isdigit for one character.
bool is_digit(char32_t code_point);
/// Python's str.isnumeric for one character.
bool is_numeric(char32_t code_point);
/// +1 for an upper or title case letter, -1 for a lower case one, 0 without case.
int letter_case(char32_t code_point);

/// Which ends strip() works on.
enum class Ends : std::uint8_t { kLeft = 1, kRight = 2, kBoth = 3 };
/// Without the white space at its ends.
std::string_view strip(std::string_view text, Ends ends);
/// Without the characters of `set` at its ends.
std::string_view strip(std::string_view text, std::string_view set, Ends ends);

/// Python's str.upper.
std::string upper(std::string_view text);
/// Python's str.lower, with the sigma that ends a word.
std::string lower(std::string_view text);
/// Python's str.capitalize: the first character in title case, the others lower.
std::string capitalize(std::string_view text);
/// Python's str.title: a letter after a character without case begins a word.
std::string title(std::string_view text);
/// Python's str.swapcase.
std::string swapcase(std::string_view text);

/// Where `needle` first stands at or after byte `from`, or npos; linear in the text, also for
/// hostile ones.
std::size_t find(std::string_view text, std::string_view needle, std::size_t from = 0);
/// Python's str.splitlines without the ends.
std::vector<std::string_view> split_lines(std::string_view text);
/// Appends Python's repr of a string.
void append_repr(std::string_view text, std::string& out);
/// Appends a string as JSON has it; with `ascii`, all else is escaped as \uXXXX.
void append_json(std::string_view text, bool ascii, std::string& out);
/// Replaces & < > ' " by what HTML has for them.
std::string escape_html(std::string_view text);

}  // namespace atl::text::jinja
