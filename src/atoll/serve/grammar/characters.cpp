#include "atoll/serve/grammar/characters.h"

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/text/utf8.h"

namespace atl::serve::grammar {

namespace {

constexpr char32_t kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF, kLastCharacter = 0x10FFFF;

// Ascending ranges that neither overlap nor touch.
std::vector<CharacterRange> normalized(std::vector<CharacterRange> ranges) {
  std::erase_if(ranges, [](const CharacterRange& range) { return range.first > range.last; });
  std::sort(ranges.begin(), ranges.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<CharacterRange> result;
  for (const CharacterRange& range : ranges) {
    if (!result.empty() && range.first <= result.back().last + 1) {
      result.back().last = std::max(result.back().last, range.last);
    } else {
      result.push_back(range);
    }
  }
  return result;
}

std::vector<CharacterRange> inverted(const std::vector<CharacterRange>& ranges) {
  std::vector<CharacterRange> result;
  char32_t next = 0;
  for (const CharacterRange& range : ranges) {
    if (range.first > next) result.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCharacter) result.push_back({next, kLastCharacter});
  return result;
}

std::vector<CharacterRange> without_surrogates(const std::vector<CharacterRange>& ranges) {
  std::vector<CharacterRange> result;
  for (const CharacterRange& range : ranges) {
    result.push_back({range.first, std::min<char32_t>(range.last, kFirstSurrogate - 1)});
    result.push_back({std::max<char32_t>(range.first, kLastSurrogate + 1),
                      std::min(range.last, kLastCharacter)});
  }
  return normalized(std::move(result));
}

// Both ends have the same number of bytes. Cuts the range where bytes behind the first that differs
// do not go from 0x80 to 0xBF.
void append_same_length(char32_t first, char32_t last, std::vector<ByteRanges>& out) {
  std::string low, high;
  text::append_utf8(first, low);
  text::append_utf8(last, high);
  for (std::size_t i = 1; i < low.size(); ++i) {
    const char32_t mask = (char32_t{1} << (6 * i)) - 1;
    if ((first & ~mask) == (last & ~mask)) continue;
    if ((first & mask) != 0) {
      append_same_length(first, first | mask, out);
      append_same_length((first | mask) + 1, last, out);
      return;
    }
    if ((last & mask) != mask) {
      append_same_length(first, (last & ~mask) - 1, out);
      append_same_length(last & ~mask, last, out);
      return;
    }
  }
  ByteRanges bytes;
  for (std::size_t i = 0; i < low.size(); ++i) {
    bytes.push_back({static_cast<std::uint8_t>(low[i]), static_cast<std::uint8_t>(high[i])});
  }
  out.push_back(std::move(bytes));
}

}  // namespace

CharacterSet::CharacterSet(std::vector<CharacterRange> ranges)
    : ranges_(without_surrogates(ranges)) {}

CharacterSet CharacterSet::all() {
  return CharacterSet({{0, kLastCharacter}});
}

CharacterSet CharacterSet::of(std::string_view ascii) {
  std::vector<CharacterRange> ranges;
  for (const char c : ascii) {
    ranges.push_back({static_cast<unsigned char>(c), static_cast<unsigned char>(c)});
  }
  return CharacterSet(std::move(ranges));
}

bool CharacterSet::contains(char32_t character) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const CharacterRange& range) {
    return range.first <= character && character <= range.last;
  });
}

CharacterSet CharacterSet::complement() const {
  return CharacterSet(inverted(ranges_));
}

CharacterSet CharacterSet::joined_with(const CharacterSet& other) const {
  std::vector<CharacterRange> ranges = ranges_;
  ranges.insert(ranges.end(), other.ranges_.begin(), other.ranges_.end());
  return CharacterSet(std::move(ranges));
}

CharacterSet CharacterSet::without(const CharacterSet& other) const {
  return complement().joined_with(other).complement();
}

std::vector<ByteRanges> utf8_ranges(const CharacterSet& set) {
  constexpr char32_t kLastOfLength[] = {0x7F, 0x7FF, 0xFFFF, kLastCharacter};
  std::vector<ByteRanges> result;
  for (const CharacterRange& range : set.ranges()) {
    char32_t first = range.first;
    for (const char32_t last : kLastOfLength) {
      if (first > last || first > range.last) continue;
      append_same_length(first, std::min(range.last, last), result);
      first = last + 1;
    }
  }
  return result;
}

std::vector<char32_t> code_points(std::string_view text, std::string_view origin) {
  std::vector<char32_t> result;
  for (std::size_t at = 0; at < text.size();) {
    const text::Utf8Step step = text::utf8_step(text.substr(at));
    if (step.kind != text::Utf8Kind::kValid) {
      throw user_error("{}: byte {} is not UTF-8; write the text as UTF-8", origin, at);
    }
    result.push_back(text::decode_utf8(text.substr(at, step.size)));
    at += step.size;
  }
  return result;
}

}  // namespace atl::serve::grammar
