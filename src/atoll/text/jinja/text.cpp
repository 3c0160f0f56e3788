#include "atoll/text/jinja/text.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "atoll/text/jinja/case.h"
#include "atoll/text/utf8.h"

namespace atl::text::jinja {

namespace {

bool is_ascii(char32_t c) {
  return c < 0x80;
}

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

// Appends a mapped letter; a byte that is no UTF-8 stays as it is.
void append_mapped(std::string_view character, std::u16string_view special,
                   utf8proc_int32_t (*map)(utf8proc_int32_t), std::string& out) {
  if (utf8_step(character).kind != Utf8Kind::kValid) {
    out += character;
  } else if (special.empty()) {
    const char32_t c = decode_utf8(character);
    append_utf8(static_cast<char32_t>(map(static_cast<utf8proc_int32_t>(c))), out);
  } else {
    for (const char16_t unit : special) append_utf8(unit, out);
  }
}

void append_upper(std::string_view character, std::string& out) {
  append_mapped(character, special_upper(code_point(character)), utf8proc_toupper, out);
}

void append_title(std::string_view character, std::string& out) {
  append_mapped(character, special_title(code_point(character)), utf8proc_totitle, out);
}

bool is_case_ignorable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2018 || c == 0x2019 ||
             c == 0x2024 || c == 0x2027;
  }
}

// A sigma ends a word when a letter with case stands before it and none after it, marks aside.
bool ends_word(const std::vector<std::string_view>& all, std::size_t at) {
  std::size_t before = at;
  while (before > 0 && is_case_ignorable(code_point(all[before - 1]))) --before;
  if (before == 0 || letter_case(code_point(all[before - 1])) == 0) return false;
  std::size_t after = at + 1;
  while (after < all.size() && is_case_ignorable(code_point(all[after]))) ++after;
  return after == all.size() || letter_case(code_point(all[after])) == 0;
}

void append_lower(const std::vector<std::string_view>& all, std::size_t at, std::string& out) {
  const char32_t c = code_point(all[at]);
  if (c == 0x3A3) {
    append_utf8(ends_word(all, at) ? 0x3C2 : 0x3C3, out);
  } else {
    append_mapped(all[at], c == 0x130 ? u"i\u0307" : u"", utf8proc_tolower, out);
  }
}

// Byte by byte where all is ASCII, which nearly all texts are.
bool all_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
}

std::size_t last_character(std::string_view text) {
  std::size_t begin = text.size() - 1;
  while (begin > 0 && text.size() - begin < 4 &&
         (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) {
    --begin;
  }
  const Utf8Step step = utf8_step(text.substr(begin));
  const bool whole = step.kind == Utf8Kind::kValid && begin + step.size == text.size();
  return whole ? begin : text.size() - 1;
}

std::string_view first_of(std::string_view text) {
  const Utf8Step step = utf8_step(text);
  return text.substr(0, step.kind == Utf8Kind::kValid ? step.size : 1);
}

template <typename Drop>
std::string_view strip_if(std::string_view text, Ends ends, Drop drop) {
  while (ends != Ends::kRight && !text.empty() && drop(first_of(text))) {
    text.remove_prefix(first_of(text).size());
  }
  while (ends != Ends::kLeft && !text.empty() && drop(text.substr(last_character(text)))) {
    text.remove_suffix(text.size() - last_character(text));
  }
  return text;
}

bool is_printable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return c == ' ';
    default:
      return true;
  }
}

}  // namespace

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> all;
  all.reserve(text.size());
  while (!text.empty()) {
    all.push_back(first_of(text));
    text.remove_prefix(all.back().size());
  }
  return all;
}

std::size_t count_characters(std::string_view text) {
  if (all_ascii(text)) return text.size();
  std::size_t count = 0;
  for (; !text.empty(); ++count) text.remove_prefix(first_of(text).size());
  return count;
}

char32_t code_point(std::string_view character) {
  return utf8_step(character).kind == Utf8Kind::kValid ? decode_utf8(character) : 0xFFFD;
}

bool is_space(char32_t c) {
  return is_white_space(c) || (c >= 0x1C && c <= 0x1F);
}

bool is_alpha(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return true;
    default:
      return false;
  }
}

bool is_digit(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_ND || c == 0xB2 || c == 0xB3 || c == 0xB9;
}

bool is_numeric(char32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL ||
         kind == UTF8PROC_CATEGORY_NO;
}

int letter_case(char32_t c) {
  const auto kind = category(c);
  if (kind == UTF8PROC_CATEGORY_LL) return -1;
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LT ? 1 : 0;
}

std::string_view strip(std::string_view text, Ends ends) {
  return strip_if(text, ends, [](std::string_view c) { return is_space(code_point(c)); });
}

std::string_view strip(std::string_view text, std::string_view set, Ends ends) {
  const auto drop = characters(set);
  return strip_if(text, ends, [&](std::string_view c) {
    return std::find(drop.begin(), drop.end(), c) != drop.end();
  });
}

std::string upper(std::string_view text) {
  std::string out;
  for (const std::string_view character : characters(text)) append_upper(character, out);
  return out;
}

std::string lower(std::string_view text) {
  std::string out;
  const auto all = characters(text);
  for (std::size_t i = 0; i < all.size(); ++i) append_lower(all, i, out);
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  const auto all = characters(text);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i == 0) {
      append_title(all[i], out);
    } else {
      append_lower(all, i, out);
    }
  }
  return out;
}

std::string title(std::string_view text) {
  std::string out;
  const auto all = characters(text);
  bool inside = false;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (inside) {
      append_lower(all, i, out);
    } else {
      append_title(all[i], out);
    }
    inside = letter_case(code_point(all[i])) != 0;
  }
  return out;
}

std::string swapcase(std::string_view text) {
  std::string out;
  const auto all = characters(text);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (letter_case(code_point(all[i])) < 0) {
      append_upper(all[i], out);
    } else {
      append_lower(all, i, out);
    }
  }
  return out;
}

std::size_t find(std::string_view text, std::string_view needle, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  // memmem is linear, where string_view::find is quadratic for "aaa...b" in "aaa...".
  const void* at = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return at == nullptr ? std::string_view::npos
                       : static_cast<std::size_t>(static_cast<const char*>(at) - text.data());
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view character = first_of(text.substr(at));
    const char32_t c = code_point(character);
    const std::size_t end = at;
    at += character.size();
    if ((c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
        c == 0x2029) {
      if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
      lines.push_back(text.substr(begin, end - begin));
      begin = at;
    }
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

void append_repr(std::string_view text, std::string& out) {
  const bool double_quotes =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = double_quotes ? '"' : '\'';
  out += quote;
  while (!text.empty()) {
    const std::string_view character = first_of(text);
    text.remove_prefix(character.size());
    const char32_t c = code_point(character);
    if (c == static_cast<unsigned char>(quote) || c == '\\') {
      (out += '\\') += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      (out += '\\') += c == '\n' ? 'n' : c == '\r' ? 'r' : 't';
    } else if (is_printable(c)) {
      out += character;
    } else {
      const auto value = static_cast<std::uint32_t>(c);
      out += value < 0x100     ? fmt::format("\\x{:02x}", value)
             : value < 0x10000 ? fmt::format("\\u{:04x}", value)
                               : fmt::format("\\U{:08x}", value);
    }
  }
  out += quote;
}

void append_json(std::string_view text, bool ascii, std::string& out) {
  out += '"';
  while (!text.empty()) {
    const std::string_view character = first_of(text);
    text.remove_prefix(character.size());
    const char32_t c = code_point(character);
    constexpr std::string_view kEscaped = "\"\\\n\r\t\b\f";
    constexpr std::string_view kLetters = "\"\\nrtbf";
    if (const auto at = kEscaped.find(static_cast<char>(c));
        is_ascii(c) && at != std::string_view::npos) {
      (out += '\\') += kLetters[at];
    } else if (c < 0x20 || (ascii && c > 0x7E && c != 0x7F && c < 0x10000)) {
      out += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(c));
    } else if (ascii && c >= 0x10000) {
      const auto rest = static_cast<std::uint32_t>(c) - 0x10000;
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    } else {
      out += character;
    }
  }
  out += '"';
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace atl::text::jinja
